#include "tests/benchmarks/delivery_rig.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <thread>
#include <utility>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>

#include "absl/strings/str_cat.h"
#include "client/batch_stream.h"
#include "common/mutex.h"
#include "proto/transport.h"
#include "tests/fakes/job_config.h"

namespace ballast {
namespace {

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << "\n";
  std::abort();
}

std::string NewDirectory() {
  char path[] = "/tmp/ballast-bench-XXXXXX";
  if (mkdtemp(path) == nullptr) std::abort();
  return path;
}

// Serves at a socket in `directory`, or at 127.0.0.1. Changes `address` to
// where clients find it.
std::unique_ptr<grpc::Server> Serve(grpc::ServerBuilder* builder, Way way,
                                    const std::string& directory,
                                    std::string* address) {
  *address = way == Way::kSocket ? absl::StrCat("unix:", directory, "/s")
                                 : "127.0.0.1:0";
  int port = 0;
  builder->AddListeningPort(*address, grpc::InsecureServerCredentials(), &port);
  auto server = builder->BuildAndStart();
  if (server == nullptr) std::abort();
  if (way != Way::kSocket) *address = absl::StrCat("127.0.0.1:", port);
  return server;
}

class PaintingBuilder : public SampleBuilder {
 public:
  absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const override {
    std::memset(request.payload.data(),
                static_cast<int>(request.record.position),
                request.payload.size());
    return SampleOutcome::kBuilt;
  }
};

std::vector<FakeSourceIndex::Sample> Photos(uint32_t n) {
  FakeSourceIndex::Sample sample;
  sample.text_tokens = 20;
  sample.label_tokens = 5;
  sample.images = {{448, 448}};
  return std::vector<FakeSourceIndex::Sample>(n, sample);
}

v1::Config ConfigFor(uint32_t clients) {
  const uint32_t micro = clients * DeliveryRig::kSamples;
  v1::Config config = JobConfig(clients, 0, micro, micro, v1::DELIVERY_OFF);
  config.mutable_serve()->set_memory((clients * DeliveryRig::kSteps * 6 + 16)
                                     << 20);
  config.mutable_serve()->set_prefetch_steps(DeliveryRig::kSteps);
  config.mutable_serve()->set_arena("/dev/shm");
  return config;
}

constexpr int kMessageLimit = static_cast<int>(kMaxChunkBytes) + 1024;

}  // namespace

double TimeTogether(uint32_t clients,
                    const std::function<std::shared_ptr<void>(
                        uint32_t, const std::function<void()>&)>& work) {
  using Clock = std::chrono::steady_clock;
  Mutex mutex;
  CondVar changed;
  uint32_t ready = 0;
  Clock::time_point start, end;
  std::vector<std::shared_ptr<void>> kept(clients);
  std::vector<std::thread> threads;
  for (uint32_t client = 0; client < clients; ++client) {
    threads.emplace_back([&, client] {
      kept[client] = work(client, [&] {
        MutexLock lock(&mutex);
        if (++ready == clients) {
          start = Clock::now();
          changed.NotifyAll();
        }
        while (ready < clients) changed.Wait(&mutex);
      });
      MutexLock lock(&mutex);
      end = Clock::now();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::chrono::duration<double>(end - start).count();
}

DeliveryRig::DeliveryRig(uint32_t clients, Way way)
    : clients_(clients),
      index_(Photos(997)),
      config_(ConfigFor(clients)),
      scheduler_(*Scheduler::Create(config_, {&index_})),
      directory_(NewDirectory()) {
  auto loader = Loader::Create(config_, clients, scheduler_.get(),
                               std::make_unique<PaintingBuilder>());
  Check(loader.status());
  loader_ = *std::move(loader);
  service_ = std::make_unique<LoaderServiceImpl>("bench", scheduler_.get(),
                                                 loader_.get(), &calls_);
  std::string address;
  if (way == Way::kRelay) {
    v1::Serve serve;
    serve.add_listen("127.0.0.1:0");
    auto started = StartCallServer(
        *OpenAllSockets(serve), *ServerSecurity::Load({}), {service_.get()},
        std::make_shared<ConnectionPlaces>(1000), [](const absl::Status&) {});
    Check(started.status());
    server_ = *std::move(started);
    address = server_.addresses[0];
  } else {
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    server_.server = Serve(&builder, way, directory_, &address);
  }
  for (uint32_t i = 0; i < clients; ++i) {
    connections_.push_back(LoaderClient::Create(address));
  }
  // Builds all blocks, and warms the connections.
  Pull(way == Way::kSocket, [this](uint32_t client, const FetchedBlock& block) {
    if (client == 0) bytes_ += block.bytes().size();
  });
}

DeliveryRig::~DeliveryRig() {
  connections_.clear();
  server_.server->Shutdown(std::chrono::system_clock::now());
  std::filesystem::remove_all(directory_);
}

double DeliveryRig::Pull(
    bool shared_memory,
    const std::function<void(uint32_t, const FetchedBlock&)>& take,
    std::vector<double>* next_us) {
  Mutex mutex;
  const auto pull =
      [&](uint32_t client,
          const std::function<void()>& ready) -> std::shared_ptr<void> {
    FetchRequest request;
    request.role.set_module(v1::MODULE_VISION);
    request.role.set_dp_rank(client);
    request.steps = kSteps;
    request.fingerprint = scheduler_->fingerprint().hash();
    request.max_bytes = uint64_t{20} << 20;  // four blocks
    request.accept_shared_memory = shared_memory;
    BatchStream::Options options;
    options.request = request;
    std::shared_ptr<BatchStream> stream = *BatchStream::Create(
        [&](size_t, const FetchRequest& at) {
          return connections_[client]->OpenPull(at);
        },
        options);
    auto block = stream->Next();
    Check(block.status());
    if ((*block)->region()->read_only() != shared_memory) std::abort();
    ready();
    std::vector<double> took;
    for (uint64_t step = 0; step < kSteps; ++step) {
      if (step > 0) {
        const auto start = std::chrono::steady_clock::now();
        block = stream->Next();
        took.push_back(std::chrono::duration<double, std::micro>(
                           std::chrono::steady_clock::now() - start)
                           .count());
      }
      Check(block.status());
      take(client, **block);
      block->reset();
    }
    if (next_us != nullptr) {
      MutexLock lock(&mutex);
      next_us->insert(next_us->end(), took.begin(), took.end());
    }
    return stream;
  };
  return TimeTogether(clients_, pull);
}

namespace {

// Sends the number of messages given in the method's name.
class Sender final : public grpc::ServerGenericBidiReactor {
 public:
  Sender(uint64_t messages, const grpc::ByteBuffer* message)
      : left_(messages), message_(message) {
    Next();
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      Next();
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (left_-- > 0) {
      StartWrite(message_);
    } else {
      Finish(grpc::Status::OK);
    }
  }
  uint64_t left_;
  const grpc::ByteBuffer* const message_;
};

// Reads messages as fast as possible and drops them.
class Receiver final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Receiver(const std::shared_ptr<grpc::Channel>& channel,
           const std::string& method) {
    grpc::GenericStub(channel).PrepareBidiStreamingCall(&context_, method, {},
                                                        this);
    StartRead(&message_);
    StartCall();
  }
  void AwaitFirst() {
    MutexLock lock(&mutex_);
    while (!begun_ && !done_) changed_.Wait(&mutex_);
  }
  void AwaitLast() {
    MutexLock lock(&mutex_);
    while (!done_) changed_.Wait(&mutex_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (ok) StartRead(&message_);
    MutexLock lock(&mutex_);
    if (!std::exchange(begun_, true)) changed_.NotifyAll();
  }
  void OnDone(const grpc::Status&) override {
    MutexLock lock(&mutex_);
    done_ = true;
    changed_.NotifyAll();
  }

  grpc::ClientContext context_;
  grpc::ByteBuffer message_;
  Mutex mutex_;
  CondVar changed_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

class RawStreams::Service final : public grpc::CallbackGenericService {
 public:
  Service() {
    const grpc::Slice slice(std::string(kMaxChunkBytes, 'x'));
    message_ = grpc::ByteBuffer(&slice, 1);
  }
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Sender(std::stoull(context->method().substr(5)), &message_);
  }

 private:
  grpc::ByteBuffer message_;
};

RawStreams::RawStreams(uint32_t clients, Way way)
    : service_(std::make_unique<Service>()), directory_(NewDirectory()) {
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(service_.get());
  std::string address;
  server_ = Serve(&builder, way, directory_, &address);
  for (uint32_t i = 0; i < clients; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMessageLimit);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channels_.push_back(grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), arguments));
  }
  Pull(1);
}

RawStreams::~RawStreams() {
  channels_.clear();
  server_->Shutdown(std::chrono::system_clock::now());
  std::filesystem::remove_all(directory_);
}

double RawStreams::Pull(uint64_t messages) {
  return TimeTogether(
      channels_.size(),
      [&](uint32_t client,
          const std::function<void()>& ready) -> std::shared_ptr<void> {
        auto receiver = std::make_shared<Receiver>(
            channels_[client], absl::StrCat("/raw/", messages));
        receiver->AwaitFirst();
        ready();
        receiver->AwaitLast();
        return receiver;
      });
}

}  // namespace ballast
