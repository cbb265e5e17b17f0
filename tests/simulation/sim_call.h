#ifndef BALLAST_TESTS_SIMULATION_SIM_CALL_H_
#define BALLAST_TESTS_SIMULATION_SIM_CALL_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/simulation/sim_network.h"
#include "tests/simulation/sim_server.h"

namespace ballast {

// A unary call from a node to the server at an address.
template <typename Response>
class SimCall final : public SimConnection {
 public:
  using Answer = absl::StatusOr<Response>;
  using Handler =
      std::function<void(SimServer*, std::function<void(Answer)> answer)>;

  SimCall(SimNetwork* network, int node, std::string address)
      : network_(*network), address_(std::move(address)) {
    client = node;
    server_machine = network->MachineOf(address_);
  }

  // Runs `handler` on a thread of the server and waits for its answer, at most
  // for `patience`. A process that has crashed sends nothing more.
  Answer Run(Handler handler, absl::Duration patience = absl::Seconds(10)) {
    if (network_.crashed(client)) {
      return absl::UnavailableError("this process is gone");
    }
    const auto self = Self();
    network_.Add(self);
    const int machine = network_.machine(client);
    const auto there =
        std::make_shared<SimNetwork::Pipe>(&network_, machine, server_machine);
    back_ =
        std::make_shared<SimNetwork::Pipe>(&network_, server_machine, machine);
    there->Send([self, handler = std::move(handler)] {
      self->Arrive(std::move(handler));
    });
    SimThreads& threads = *SimThreads::Current();
    const absl::Time deadline = threads.Now() + patience;
    while (!answer_.has_value() && threads.Wait(this, deadline)) {
    }
    return answer_.has_value() ? *answer_
                               : absl::DeadlineExceededError("no answer");
  }

  void Lose(int node, const std::string& why) override {
    if (node == client) End(absl::UnavailableError(why));
  }

 private:
  std::shared_ptr<SimCall> Self() {
    return std::static_pointer_cast<SimCall>(this->shared_from_this());
  }
  void Arrive(Handler handler) {
    SimServer* const process = network_.At(address_);
    const auto self = Self();
    if (process == nullptr) {
      back_->Send(
          [self] { self->End(absl::UnavailableError("connection refused")); });
      return;
    }
    server = process->node();
    network_.BeginCall(server);
    network_.Post(server, [self, process, handler = std::move(handler)] {
      handler(process, [self](Answer answer) {
        if (self->network_.crashed(self->server)) return;
        self->back_->Send(
            [self, answer = std::move(answer)] { self->End(answer); });
      });
      self->network_.EndCall(self->server);
    });
  }
  void End(Answer answer) {
    if (!answer_.has_value()) answer_ = std::move(answer);
    SimThreads::Current()->NotifyAll(this);
  }

  SimNetwork& network_;
  const std::string address_;
  std::shared_ptr<SimNetwork::Pipe> back_;
  std::optional<Answer> answer_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_CALL_H_
