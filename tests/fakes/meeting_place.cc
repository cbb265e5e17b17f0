#include "tests/fakes/meeting_place.h"

#include <future>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tests/fakes/fake_loader_client.h"

namespace ballast {

absl::StatusOr<std::string> MeetingPlace::Meet(const std::string& group,
                                               uint32_t rank, uint32_t size,
                                               const std::string& id,
                                               absl::Duration timeout,
                                               const std::string& run) {
  v1::RendezvousRequest request;
  request.set_group(group);
  request.set_rank(rank);
  request.set_size(size);
  request.set_id(id);
  request.set_run(run);
  request.set_member(absl::StrCat(rank));
  // Shared: the other rank may still be in set_value when this one returns.
  // Not absl::Notification, whose ordering ThreadSanitizer cannot see.
  using Answer = absl::StatusOr<v1::RendezvousResponse>;
  const auto answered = std::make_shared<std::promise<Answer>>();
  std::future<Answer> response = answered->get_future();
  const uint64_t ticket = rendezvous_.Join(request, [answered](Answer answer) {
    answered->set_value(std::move(answer));
  });
  if (response.wait_for(absl::ToChronoNanoseconds(timeout)) !=
          std::future_status::ready &&
      rendezvous_.Leave(ticket)) {
    return absl::DeadlineExceededError(
        absl::StrCat("not all ranks of ", group, " came"));
  }
  BALLAST_ASSIGN_OR_RETURN(const v1::RendezvousResponse answer, response.get());
  return answer.id();
}

std::unique_ptr<LoaderClient> MeetingPlace::Client() {
  FakeLoader loader;
  loader.on_rendezvous = [this](const auto&... arguments) {
    return Meet(arguments...);
  };
  return FakeLoaderClient(std::move(loader));
}

}  // namespace ballast
