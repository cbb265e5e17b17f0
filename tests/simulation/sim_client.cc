#include "tests/simulation/sim_client.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/buffer_pool.h"
#include "client/grpc_batch_fetcher.h"
#include "common/status_macros.h"
#include "tests/simulation/sim_call.h"
#include "tests/simulation/sim_server.h"

namespace ballast {
namespace {

// A fetched block that counts among its rank's.
class CountedBlock final : public FetchedBlock {
 public:
  CountedBlock(std::unique_ptr<FetchedBlock> block,
               std::shared_ptr<SimHeld> held, bool skip_generation_check)
      : block_(std::move(block)),
        held_(std::move(held)),
        skip_generation_check_(skip_generation_check) {
    const uint64_t bytes = block_->bytes().size();
    held_->bytes += bytes;
    held_->most = std::max(held_->most, held_->bytes);
    held_->largest_block = std::max(held_->largest_block, bytes);
  }
  ~CountedBlock() override { held_->bytes -= block_->bytes().size(); }

  uint64_t step() const override { return block_->step(); }
  uint32_t micro_batch() const override { return block_->micro_batch(); }
  absl::Span<const uint8_t> bytes() const override { return block_->bytes(); }
  bool intact() const override {
    return skip_generation_check_ || block_->intact();
  }
  bool may_be_overwritten() const override {
    return block_->may_be_overwritten();
  }
  std::shared_ptr<const MemoryRegion> region() const override {
    return block_->region();
  }

 private:
  const std::unique_ptr<FetchedBlock> block_;
  const std::shared_ptr<SimHeld> held_;
  const bool skip_generation_check_;
};

class CountingFetcher final : public BatchFetcher {
 public:
  CountingFetcher(std::unique_ptr<BatchFetcher> fetcher,
                  std::shared_ptr<SimHeld> held, bool skip_generation_check)
      : fetcher_(std::move(fetcher)),
        held_(std::move(held)),
        skip_generation_check_(skip_generation_check) {}
  absl::StatusOr<std::unique_ptr<FetchedBlock>> Fetch() override {
    BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<FetchedBlock> block,
                             fetcher_->Fetch());
    return std::make_unique<CountedBlock>(std::move(block), held_,
                                          skip_generation_check_);
  }
  void Cancel() override { fetcher_->Cancel(); }
  uint64_t bytes_received() const override {
    return fetcher_->bytes_received();
  }

 private:
  const std::unique_ptr<BatchFetcher> fetcher_;
  const std::shared_ptr<SimHeld> held_;
  const bool skip_generation_check_;
};

class SimClient final : public LoaderClient {
 public:
  SimClient(const SimClientOptions& options, SimNetwork* network,
            std::shared_ptr<SimHeld> held)
      : options_(options), network_(network), held_(std::move(held)) {}

  std::unique_ptr<LoaderClient> CreateAt(
      const std::string& address) const override {
    SimClientOptions options = options_;
    options.address = address;
    return MakeSimClient(options, network_, held_);
  }
  absl::StatusOr<v1::AttachResponse> Attach(
      const v1::Role& role, const v1::Fingerprint& expected) override {
    v1::AttachRequest request;
    *request.mutable_role() = role;
    *request.mutable_fingerprint() = expected;
    return Named(Call<v1::AttachResponse>()->Run(
        [request](SimServer* server, auto answer) {
          answer(server->Attach(request));
        }));
  }
  absl::StatusOr<v1::StepSchedule> GetSchedule(uint64_t step, v1::Split,
                                               Use use) override {
    return Named(Call<v1::StepSchedule>()->Run(
        [step, use](SimServer* server, auto answer) {
          server->GetSchedule(step, use, [answer](auto schedule) {
            if (schedule.ok()) {
              answer(**schedule);
            } else {
              answer(schedule.status());
            }
          });
        }));
  }
  absl::StatusOr<std::unique_ptr<BatchFetcher>> OpenPull(
      const FetchRequest& request) override {
    FetchRequest asked = request;
    asked.accept_shared_memory = options_.accept_shared_memory;
    return std::make_unique<CountingFetcher>(
        MakeGrpcBatchFetcher(
            MakeSimPullChannel(network_, options_.node, options_.address,
                               options_.streams),
            asked, options_.address, arenas_, &pools_),
        held_, options_.skip_generation_check);
  }
  const std::string& address() const override { return options_.address; }

  absl::StatusOr<std::unique_ptr<ScheduleWatcher>> WatchSchedule(
      uint64_t, uint64_t, v1::Split) override {
    return Absent();
  }
  absl::StatusOr<std::string> Rendezvous(const std::string&, uint32_t, uint32_t,
                                         const std::string&, absl::Duration,
                                         const std::string&) override {
    return Absent();
  }
  absl::Status Report(absl::Span<const v1::StepTiming>,
                      const std::string&) override {
    return Absent();
  }
  absl::StatusOr<std::vector<v1::StepTiming>> GetTimings(uint64_t,
                                                         v1::Module) override {
    return Absent();
  }
  absl::Status CheckHealth() override { return Absent(); }

 private:
  static absl::Status Absent() {
    return absl::UnimplementedError("not simulated");
  }
  template <typename Response>
  std::shared_ptr<SimCall<Response>> Call() {
    return std::make_shared<SimCall<Response>>(network_, options_.node,
                                               options_.address);
  }
  template <typename Response>
  absl::StatusOr<Response> Named(absl::StatusOr<Response> answer) const {
    if (answer.ok()) return answer;
    return Annotate(answer.status(), absl::StrCat("server ", options_.address));
  }

  const SimClientOptions options_;
  SimNetwork* const network_;
  const std::shared_ptr<SimHeld> held_;
  const std::shared_ptr<ArenaCache> arenas_ = std::make_shared<ArenaCache>();
  BufferPools pools_;
};

}  // namespace

std::unique_ptr<LoaderClient> MakeSimClient(const SimClientOptions& options,
                                            SimNetwork* network,
                                            std::shared_ptr<SimHeld> held) {
  return std::make_unique<SimClient>(options, network, std::move(held));
}

namespace {

using Bytes = grpc::ByteBuffer;
using ServerReactor = grpc::ServerBidiReactor<Bytes, Bytes>;

// A copy, so that no memory of the sender is in flight.
std::string Flatten(const Bytes& message) {
  std::vector<grpc::Slice> slices;
  message.Dump(&slices);
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

void Unflatten(const std::string& bytes, Bytes* message) {
  const grpc::Slice slice(bytes);
  *message = Bytes(&slice, 1);
}

grpc::Status Lost(const std::string& why) {
  return {grpc::StatusCode::UNAVAILABLE, why};
}

// Both ends of one Pull. It lives until the last reaction.
class SimPull final : public SimConnection {
 public:
  SimPull(SimNetwork* network, int client_node, std::string address,
          PullClientReactor* reactor)
      : network_(*network),
        address_(std::move(address)),
        client_(this, reactor),
        server_(this) {
    client = client_node;
    server_machine = network->MachineOf(address_);
    const int machine = network->machine(client_node);
    to_server_ =
        std::make_shared<SimNetwork::Pipe>(network, machine, server_machine);
    to_client_ =
        std::make_shared<SimNetwork::Pipe>(network, server_machine, machine);
  }

  void Lose(int node, const std::string& why) override {
    if (node == client) client_.End(Lost(why));
    if (node == server) server_.Cancel();
  }

  std::shared_ptr<SimPull> Self() {
    return std::static_pointer_cast<SimPull>(shared_from_this());
  }

  // By the rank: ends its side at once and tells the server.
  void Cancel() {
    if (!client_.End({grpc::StatusCode::CANCELLED, "cancelled"})) return;
    to_server_->Send([self = Self()] { self->server_.Cancel(); });
  }

 private:
  // Reactions are counted, so that the last comes after all others.
  template <typename End>
  void React(End* end, int node, std::function<void()> reaction) {
    ++end->reactions;
    network_.Post(node, [self = Self(), end, reaction = std::move(reaction)] {
      reaction();
      --end->reactions;
      end->MayEnd();
    });
  }

  class ClientEnd final
      : public grpc::ClientCallbackReaderWriter<Bytes, Bytes> {
   public:
    ClientEnd(SimPull* pull, PullClientReactor* reactor)
        : pull_(*pull), reactor_(reactor) {
      BindReactor(reactor);
    }

    void StartCall() override {
      started_ = true;
      pull_.network_.Add(pull_.Self());
      pull_.to_server_->Send([self = pull_.Self()] { self->Arrive(); });
      for (std::string& message : early_) Send(std::move(message));
      early_.clear();
    }
    void Write(const Bytes* message, grpc::WriteOptions) override {
      if (started_) {
        Send(Flatten(*message));
      } else {
        early_.push_back(Flatten(*message));
      }
      const bool ok = !status_.has_value();
      pull_.React(this, pull_.client,
                  [this, ok] { reactor_->OnWriteDone(ok); });
    }
    void Read(Bytes* message) override {
      reading_ = message;
      MayRead();
    }
    void WritesDone() override {}
    void AddHold(int holds) override { holds_ += holds; }
    void RemoveHold() override {
      --holds_;
      MayEnd();
    }

    void Arrive(std::string message) {
      if (status_.has_value()) return;
      inbox_.push_back(std::move(message));
      MayRead();
    }
    // The call's end, which follows the messages that have arrived.
    void EndAfterMessages(const grpc::Status& status) {
      if (!status_.has_value()) status_ = status;
      MayRead();
      MayEnd();
    }
    // Returns false if it had ended.
    bool End(const grpc::Status& status) {
      if (status_.has_value()) return false;
      inbox_.clear();
      EndAfterMessages(status);
      return true;
    }

    void MayEnd() {
      if (!status_.has_value() || !started_ || holds_ > 0 || reactions > 0 ||
          reading_ != nullptr || std::exchange(done_, true)) {
        return;
      }
      pull_.network_.Post(pull_.client, [self = pull_.Self()] {
        self->client_.reactor_->OnDone(*self->client_.status_);
      });
    }

    int reactions = 0;

   private:
    void Send(std::string message) {
      if (status_.has_value()) return;
      pull_.to_server_->Send(
          [self = pull_.Self(), message = std::move(message)] {
            self->server_.Arrive(message);
          });
    }
    void MayRead() {
      if (reading_ == nullptr || (inbox_.empty() && !status_.has_value())) {
        return;
      }
      Bytes* const into = std::exchange(reading_, nullptr);
      const bool ok = !inbox_.empty();
      if (ok) {
        Unflatten(inbox_.front(), into);
        inbox_.pop_front();
        pull_.to_server_->Send(
            [self = pull_.Self()] { self->server_.ClientHasRead(); });
      }
      pull_.React(this, pull_.client, [this, ok] { reactor_->OnReadDone(ok); });
    }

    SimPull& pull_;
    PullClientReactor* const reactor_;
    bool started_ = false;
    std::vector<std::string> early_;  // written before StartCall
    Bytes* reading_ = nullptr;
    std::deque<std::string> inbox_;
    int holds_ = 0;
    std::optional<grpc::Status> status_;
    bool done_ = false;
  };

  class ServerEnd final
      : public grpc::ServerCallbackReaderWriter<Bytes, Bytes> {
   public:
    explicit ServerEnd(SimPull* pull) : pull_(*pull) {}

    // The method handler, on a thread of the server.
    void Open(SimServer* server) {
      reactor_ = server->Pull(&context_);
      BindReactor(reactor_);
      opened_ = true;
      if (cancelled_) {
        pull_.React(this, pull_.server, [this] { reactor_->OnCancel(); });
      }
      MayRead();
      MayEnd();
    }
    void Arrive(std::string message) {
      if (cancelled_ || finished_) return;
      inbox_.push_back(std::move(message));
      MayRead();
    }
    void ClientHasRead() {
      --unread_;
      MayWrite();
    }
    void Cancel() {
      if (pull_.server == 0 || finished_ || std::exchange(cancelled_, true)) {
        return;
      }
      inbox_.clear();
      if (!opened_) return;
      pull_.React(this, pull_.server, [this] { reactor_->OnCancel(); });
      MayRead();
      MayWrite();
    }

    void SendInitialMetadata() override {}
    void Read(Bytes* message) override {
      reading_ = message;
      MayRead();
    }
    void Write(const Bytes* message, grpc::WriteOptions) override {
      writing_ = true;
      if (!cancelled_) {
        ++unread_;
        pull_.to_client_->Send(
            [self = pull_.Self(), bytes = Flatten(*message)] {
              self->client_.Arrive(bytes);
            });
      }
      MayWrite();
    }
    void Finish(grpc::Status status) override {
      finished_ = true;
      if (!cancelled_) {
        pull_.to_client_->Send([self = pull_.Self(), status] {
          self->client_.EndAfterMessages(status);
        });
      }
      MayRead();
      MayEnd();
    }
    void WriteAndFinish(const Bytes* message, grpc::WriteOptions options,
                        grpc::Status status) override {
      Write(message, options);
      Finish(std::move(status));
    }

    void MayEnd() {
      if (!finished_ || reactions > 0 || reading_ != nullptr || writing_ ||
          !opened_ || std::exchange(done_, true)) {
        return;
      }
      pull_.network_.Post(pull_.server, [self = pull_.Self()] {
        self->server_.reactor_->OnDone();
        self->network_.EndCall(self->server);
        self->until_server_is_done_.reset();
      });
    }

    int reactions = 0;

   private:
    grpc::internal::ServerReactor* reactor() override { return reactor_; }
    void CallOnDone() override {}

    void MayRead() {
      const bool over = cancelled_ || finished_;
      if (reading_ == nullptr || !opened_ || (inbox_.empty() && !over)) return;
      Bytes* const into = std::exchange(reading_, nullptr);
      const bool ok = !over;
      if (ok) {
        Unflatten(inbox_.front(), into);
        inbox_.pop_front();
      }
      pull_.React(this, pull_.server, [this, ok] { reactor_->OnReadDone(ok); });
    }
    void MayWrite() {
      if (!writing_ || (!cancelled_ && unread_ > pull_.network_.window())) {
        return;
      }
      writing_ = false;
      const bool ok = !cancelled_;
      pull_.React(this, pull_.server,
                  [this, ok] { reactor_->OnWriteDone(ok); });
    }

    SimPull& pull_;
    grpc::CallbackServerContext context_;
    ServerReactor* reactor_ = nullptr;
    bool opened_ = false;
    bool cancelled_ = false;
    bool finished_ = false;
    bool done_ = false;
    Bytes* reading_ = nullptr;
    bool writing_ = false;
    uint64_t unread_ = 0;
    std::deque<std::string> inbox_;
  };

  // The call arrives at the server's machine.
  void Arrive() {
    SimServer* const process = network_.At(address_);
    if (process == nullptr) {
      to_client_->Send(
          [self = Self()] { self->client_.End(Lost("connection refused")); });
      return;
    }
    server = process->node();
    network_.BeginCall(server);
    until_server_is_done_ = Self();
    network_.Post(server,
                  [self = Self(), process] { self->server_.Open(process); });
  }

  SimNetwork& network_;
  const std::string address_;
  std::shared_ptr<SimNetwork::Pipe> to_server_;
  std::shared_ptr<SimNetwork::Pipe> to_client_;
  ClientEnd client_;
  ServerEnd server_;
  std::shared_ptr<SimPull> until_server_is_done_;
};

class SimPullRpc final : public PullRpc {
 public:
  explicit SimPullRpc(std::shared_ptr<SimPull> pull) : pull_(std::move(pull)) {}
  void Cancel() override { pull_->Cancel(); }
  std::string peer() const override { return ""; }

 private:
  const std::shared_ptr<SimPull> pull_;
};

class SimPullChannel final : public PullChannel {
 public:
  SimPullChannel(SimNetwork* network, int client, std::string address,
                 uint32_t lanes)
      : network_(network),
        client_(client),
        address_(std::move(address)),
        lanes_(lanes) {}
  std::unique_ptr<PullRpc> Prepare(PullClientReactor* reactor) override {
    return std::make_unique<SimPullRpc>(
        std::make_shared<SimPull>(network_, client_, address_, reactor));
  }
  uint32_t lanes() const override { return lanes_; }
  // An address stands for one server here, so `peer` does not matter.
  std::vector<std::shared_ptr<PullChannel>> LanesTo(
      const std::string& /*peer*/) override {
    std::vector<std::shared_ptr<PullChannel>> channels;
    for (uint32_t i = 1; i < lanes_; ++i) {
      channels.push_back(MakeSimPullChannel(network_, client_, address_, 1));
    }
    return channels;
  }

 private:
  SimNetwork* const network_;
  const int client_;
  const std::string address_;
  const uint32_t lanes_;
};

}  // namespace

std::shared_ptr<PullChannel> MakeSimPullChannel(SimNetwork* network, int client,
                                                const std::string& address,
                                                uint32_t lanes) {
  return std::make_shared<SimPullChannel>(network, client, address, lanes);
}

}  // namespace ballast
