// ballast_communicator_* and ballast_nccl_id.

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/loader_client.h"
#include "common/status_macros.h"
#include "trainer_shim/c_api/c_api.h"
#include "trainer_shim/c_api/call.h"
#include "trainer_shim/c_api/checkpoint.h"
#include "trainer_shim/c_api/cuda_support.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/host/gloo_communicator.h"
#include "trainer_shim/host/in_process_communicator.h"
#include "trainer_shim/role_source.h"

namespace ballast {
namespace {

constexpr uint32_t kMaxRanks = 65536;
constexpr absl::Duration kMeeting = absl::Minutes(5);

absl::StatusOr<NcclEndOptions> GetOptions(const ballast_nccl_options* given) {
  BALLAST_ASSIGN_OR_RETURN(const ballast_nccl_options known,
                           ReadStruct(given, "options"));
  if (known.device < 0 || known.max_ctas > 1024) {
    return absl::InvalidArgumentError(absl::StrCat(
        "options.device is ", known.device, " and options.max_ctas is ",
        known.max_ctas, ", wanted at least 0, and 0 to 1024"));
  }
  return NcclEndOptions{known.device, static_cast<int>(known.max_ctas)};
}

absl::Status CheckRank(uint32_t rank, uint32_t size) {
  if (size <= kMaxRanks && rank < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", rank, " of a group of ", size,
      ", wanted a rank below the size and a size up to ", kMaxRanks));
}

absl::Status GiveOut(absl::StatusOr<std::unique_ptr<Communicator>> end,
                     ballast_communicator** communicator) {
  BALLAST_RETURN_IF_ERROR(end.status());
  *communicator = new ballast_communicator{*std::move(end)};
  return absl::OkStatus();
}

absl::Status MakeInProcess(int backend, uint32_t size,
                           ballast_communicator** ends) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(ends, "ends"));
  BALLAST_RETURN_IF_ERROR(CheckRank(0, size));
  BALLAST_ASSIGN_OR_RETURN(const ballast_backend kind, GetBackend(backend));
  std::vector<std::unique_ptr<Communicator>> group;
  if (kind == BALLAST_BACKEND_CUDA) {
    BALLAST_ASSIGN_OR_RETURN(group, CudaGroup(size));
  } else {
    group = InProcessGroup(size);
  }
  std::vector<std::unique_ptr<ballast_communicator>> made;
  for (std::unique_ptr<Communicator>& end : group) {
    made.emplace_back(new ballast_communicator{std::move(end)});
  }
  for (uint32_t rank = 0; rank < size; ++rank) {
    ends[rank] = made[rank].release();
  }
  return absl::OkStatus();
}

// The arguments of a rendezvous, over Gloo and over NCCL.
struct Meeting {
  Connection connection;
  std::vector<std::unique_ptr<LoaderClient>> clients;
  absl::Duration timeout;
};

// Checks the arguments that both kinds of rendezvous share.
absl::StatusOr<Meeting> GetMeeting(const ballast_connection* connection,
                                   const char* group, uint32_t rank,
                                   uint32_t size, double timeout_s,
                                   ballast_communicator** communicator) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(group, "group"));
  BALLAST_RETURN_IF_ERROR(CheckGiven(communicator, "communicator"));
  BALLAST_RETURN_IF_ERROR(CheckRank(rank, size));
  Meeting meeting;
  BALLAST_ASSIGN_OR_RETURN(meeting.timeout,
                           GetSeconds(timeout_s, kMeeting, "timeout_s"));
  BALLAST_ASSIGN_OR_RETURN(meeting.connection, GetConnection(connection));
  BALLAST_ASSIGN_OR_RETURN(meeting.clients,
                           GetClients(meeting.connection.servers));
  return meeting;
}

absl::Status MeetOverGloo(const ballast_connection* connection,
                          const char* group, uint32_t rank, uint32_t size,
                          double timeout_s,
                          ballast_communicator** communicator) {
  BALLAST_ASSIGN_OR_RETURN(
      const Meeting meeting,
      GetMeeting(connection, group, rank, size, timeout_s, communicator));
  const Connection& known = meeting.connection;
  BALLAST_ASSIGN_OR_RETURN(
      std::string address,
      ExchangeAddress(known.servers.addresses, known.exchange_interface));
  return GiveOut(
      MeetGlooCommunicator(
          MeetingServer(meeting.clients), group, rank, size, meeting.timeout,
          GlooOptions::For(known.failover, std::move(address)), known.run),
      communicator);
}

absl::Status MakeId(void* id) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(id, "id"));
  BALLAST_ASSIGN_OR_RETURN(const std::string bytes, NcclId());
  std::memcpy(id, bytes.data(),
              std::min<size_t>(bytes.size(), BALLAST_NCCL_ID_BYTES));
  return absl::OkStatus();
}

absl::Status MakeOfId(const void* id, uint32_t rank, uint32_t size,
                      const ballast_nccl_options* given,
                      ballast_communicator** communicator) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(id, "id"));
  BALLAST_RETURN_IF_ERROR(CheckGiven(communicator, "communicator"));
  BALLAST_RETURN_IF_ERROR(CheckRank(rank, size));
  BALLAST_ASSIGN_OR_RETURN(const NcclEndOptions options, GetOptions(given));
  const std::string bytes(static_cast<const char*>(id), BALLAST_NCCL_ID_BYTES);
  return GiveOut(NcclEndOfId(bytes, rank, size, options), communicator);
}

absl::Status MeetOverNccl(const ballast_connection* connection,
                          const char* group, uint32_t rank, uint32_t size,
                          double timeout_s, const ballast_nccl_options* given,
                          ballast_communicator** communicator) {
  BALLAST_ASSIGN_OR_RETURN(
      const Meeting meeting,
      GetMeeting(connection, group, rank, size, timeout_s, communicator));
  BALLAST_ASSIGN_OR_RETURN(const NcclEndOptions options, GetOptions(given));
  return GiveOut(MeetNcclEnd(meeting.clients, group, rank, size,
                             meeting.timeout, options, meeting.connection.run),
                 communicator);
}

absl::Status Borrow(void* nccl_comm, const ballast_nccl_options* given,
                    ballast_communicator** communicator) {
  BALLAST_RETURN_IF_ERROR(CheckGiven(nccl_comm, "nccl_comm"));
  BALLAST_RETURN_IF_ERROR(CheckGiven(communicator, "communicator"));
  BALLAST_ASSIGN_OR_RETURN(const NcclEndOptions options, GetOptions(given));
  return GiveOut(BorrowNcclEnd(nccl_comm, options), communicator);
}

}  // namespace
}  // namespace ballast

ballast_communicator::~ballast_communicator() {
  if (end == nullptr) return;
  end->Abort(absl::UnavailableError(
      absl::StrCat("rank ", end->rank(), " left the exchange")));
}

void ballast_communicator_destroy(ballast_communicator* communicator) {
  delete communicator;
}

int ballast_communicator_in_process(int backend, uint32_t size,
                                    ballast_communicator** ends) {
  return ballast::Call(
      [=] { return ballast::MakeInProcess(backend, size, ends); });
}

int ballast_communicator_gloo_meet(const ballast_connection* connection,
                                   const char* group, uint32_t rank,
                                   uint32_t size, double timeout_s,
                                   ballast_communicator** communicator) {
  return ballast::Call([=] {
    return ballast::MeetOverGloo(connection, group, rank, size, timeout_s,
                                 communicator);
  });
}

int ballast_nccl_id(void* id) {
  return ballast::Call([=] { return ballast::MakeId(id); });
}

int ballast_communicator_nccl(const void* id, uint32_t rank, uint32_t size,
                              const ballast_nccl_options* options,
                              ballast_communicator** communicator) {
  return ballast::Call(
      [=] { return ballast::MakeOfId(id, rank, size, options, communicator); });
}

int ballast_communicator_nccl_meet(const ballast_connection* connection,
                                   const char* group, uint32_t rank,
                                   uint32_t size, double timeout_s,
                                   const ballast_nccl_options* options,
                                   ballast_communicator** communicator) {
  return ballast::Call([=] {
    return ballast::MeetOverNccl(connection, group, rank, size, timeout_s,
                                 options, communicator);
  });
}

int ballast_communicator_nccl_borrow(void* nccl_comm,
                                     const ballast_nccl_options* options,
                                     ballast_communicator** communicator) {
  return ballast::Call(
      [=] { return ballast::Borrow(nccl_comm, options, communicator); });
}
