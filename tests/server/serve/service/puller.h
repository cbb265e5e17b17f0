#ifndef BALLAST_TESTS_SERVER_SERVE_SERVICE_PULLER_H_
#define BALLAST_TESTS_SERVER_SERVE_SERVICE_PULLER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include "proto/loader_service.grpc.pb.h"

namespace ballast {

// The client's side of a Pull, over a raw stub.
class Puller {
 public:
  explicit Puller(v1::LoaderService::Stub* stub)
      : stream_(stub->Pull(&context_)) {}
  ~Puller() {
    context_.TryCancel();
    if (!finished_) Finish();
  }

  void Open(const std::string& fingerprint, v1::Module module, uint32_t rank,
            uint64_t steps, uint64_t credit, uint64_t step = 0,
            uint32_t micro_batch = 0) {
    v1::PullRequest request;
    v1::PullRequest::Open* open = request.mutable_open();
    open->mutable_role()->set_module(module);
    open->mutable_role()->set_dp_rank(rank);
    open->set_step(step);
    open->set_micro_batch(micro_batch);
    open->set_steps(steps);
    open->set_fingerprint(fingerprint);
    open->set_credit(credit);
    stream_->Write(request);
  }

  void Credit(uint64_t bytes) {
    v1::PullRequest request;
    request.mutable_credit()->set_bytes(bytes);
    stream_->Write(request);
  }

  // The next block's bytes, aligned; empty when the stream has ended.
  std::vector<uint64_t> NextBlock() {
    v1::PullResponse message;
    if (!stream_->Read(&message)) return {};
    EXPECT_TRUE(message.has_begin());
    begin_ = message.begin();
    std::vector<uint64_t> block(begin_.bytes() / 8);
    uint64_t offset = 0;
    while (offset < begin_.bytes() && stream_->Read(&message)) {
      const std::string& data = message.chunk().data();
      EXPECT_GT(data.size(), 0);
      EXPECT_LE(data.size(), 1 << 20);
      EXPECT_LE(offset + data.size(), begin_.bytes());
      data.copy(reinterpret_cast<char*>(block.data()) + offset, data.size());
      offset += data.size();
    }
    EXPECT_EQ(XXH3_64bits(block.data(), offset), begin_.checksum());
    return block;
  }

  // Reads the beginning of the next block alone. Returns whether there is one.
  bool ReadBegin() {
    v1::PullResponse message;
    if (!stream_->Read(&message)) return false;
    begin_ = message.begin();
    return true;
  }

  const v1::PullResponse::Begin& begin() const { return begin_; }
  void Cancel() { context_.TryCancel(); }
  void WritesDone() { stream_->WritesDone(); }
  grpc::Status Finish() {
    finished_ = true;
    v1::PullResponse message;
    while (stream_->Read(&message)) {
    }
    return stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::PullRequest, v1::PullResponse>>
      stream_;
  v1::PullResponse::Begin begin_;
  bool finished_ = false;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_SERVE_SERVICE_PULLER_H_
