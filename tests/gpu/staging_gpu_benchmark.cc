// Measures a whole micro-batch on all GPUs of the machine, one thread and one
// rank each, over NCCL. Compares it with NCCL's own all-to-all, with copies of
// the same bytes, and with a loop of matrix products that fills the GPU. Times
// are the maximum over ranks.

#include <cublas_v2.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/gpu/cuda_world.h"
#include "tests/gpu/device_testing.h"
#include "tests/gpu/staging_benchmark_jobs.h"
#include "trainer_shim/cuda/device_batch.h"
#include "trainer_shim/cuda/device_stage.h"
#include "trainer_shim/cuda/nccl_communicator.h"

namespace ballast {
namespace {

constexpr uint32_t kBatches = 12;  // distinct
constexpr int kRounds = 60;        // of each measurement
constexpr int kProducts = 16;      // matrix products that make up a step
constexpr int kMatrix = 8192;

double Now() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[std::min<size_t>(values.size() - 1, q * values.size())];
}

// State shared by the ranks' threads.
struct Shared {
  explicit Shared(uint32_t ranks) : meet(ranks), times(ranks) {}
  std::barrier<> meet;
  std::vector<double> times;
};

// One rank: its device memory, communicator and batches.
class Rank {
 public:
  Rank(const BenchmarkJob& job, uint32_t rank, uint32_t ranks,
       const std::string& id, Shared* shared)
      : rank_(rank), ranks_(ranks), shared_(shared) {
    OrDie(cudaSetDevice(rank), "choosing the device");
    communicator_ = OrDie(CreateNcclCommunicator(id, rank, ranks, {}));
    finding_ = OrDie(PinnedBuffer::Create(sizeof(Finding)));
    auto* finding = new (finding_.data()) Finding;
    own_ = std::make_shared<const CudaStream>(OrDie(CudaStream::Create()));
    device_ = OrDie(DeviceStage::Create(job.shape, PixelType::kBfloat16,
                                        Normalisation::kTorchvision, own_,
                                        communicator_.get(), finding));
    for (uint32_t step = 0; step < kBatches; ++step) {
      double planning = 0;
      batches_.push_back(MakeBenchmarkBatch(job, step, rank, rank, &planning));
      planning_.push_back(planning);
    }
    for (auto& entry : entries_) entry = OrDie(DeviceEntry::Create(rank, own_));
    uint64_t most = 0;
    for (const auto& batch : batches_) {
      most = std::max(most, BytesOfPack(*batch));
    }
    from_ = OrDie(DeviceBuffer::Create(most));
    to_ = OrDie(DeviceBuffer::Create(most));
    stream_ = OrDie(CudaStream::Create());
  }

  // Half of the bytes that the pack kernel reads and writes: the size of an
  // equivalent copy.
  static uint64_t BytesOfPack(const StagedBatch& batch) {
    return (batch.plan.output.bytes + batch.plan.landing.bytes) / 2 + 256;
  }
  const StagedBatch& batch(int round) const {
    return *batches_[round % kBatches];
  }
  double planning(int round) const { return planning_[round % kBatches]; }
  cudaStream_t stream() const { return own_->get(); }
  cudaStream_t other_stream() const { return stream_.get(); }

  void Launch(int round) {
    OrDie(device_->Launch(entries_[round % 2].get(),
                          batches_[round % kBatches].get()));
  }
  void CopyIn(int round) {
    const StagedBatch& w = batch(round);
    OrDie(cudaMemcpyAsync(from_.data(), w.host.data(), w.exchange.block.bytes(),
                          cudaMemcpyHostToDevice, stream()),
          "copy in");
  }
  void DeviceCopy(int round) {
    OrDie(cudaMemcpyAsync(to_.data(), from_.data(), BytesOfPack(batch(round)),
                          cudaMemcpyDeviceToDevice, stream()),
          "device copy");
  }
  // Exchanges the plan's slices.
  void Exchange(int round) {
    const StagedBatch& w = batch(round);
    std::vector<SendSlice> sends;
    std::vector<ReceiveSlice> receives;
    for (const PeerSlice& s : w.exchange.sends) {
      sends.push_back(
          {s.peer, {from_.data() + s.payload.offset, s.payload.bytes}});
    }
    for (const PeerSlice& s : w.exchange.receives) {
      receives.push_back(
          {s.peer, {to_.data() + s.payload.offset, s.payload.bytes}});
    }
    OrDie(communicator_->AllToAllV(sends, receives, stream()));
  }
  // Exchanges as many bytes as all ranks move, in equal slices between all
  // pairs.
  void Uniform(uint64_t bytes_of_pair) {
    std::vector<SendSlice> sends;
    std::vector<ReceiveSlice> receives;
    uint64_t offset = 0;
    for (uint32_t peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_) continue;
      sends.push_back({peer, {from_.data() + offset, bytes_of_pair}});
      receives.push_back({peer, {to_.data() + offset, bytes_of_pair}});
      offset += bytes_of_pair;
    }
    OrDie(communicator_->AllToAllV(sends, receives, stream()));
  }

  // Microseconds of `work` on the device, of the slowest rank, for each round
  // except the first few.
  std::vector<double> Measure(const std::function<void(int)>& work) {
    std::vector<double> times;
    for (int round = -2 * static_cast<int>(kBatches); round < kRounds;
         ++round) {
      OrDie(cudaDeviceSynchronize(), "wait");
      shared_->meet.arrive_and_wait();
      const double begin = Now();
      work(round < 0 ? round + 2 * static_cast<int>(kBatches) : round);
      OrDie(cudaStreamSynchronize(stream()), "wait");
      shared_->times[rank_] = Now() - begin;
      shared_->meet.arrive_and_wait();
      if (round >= 0) {
        times.push_back(
            *std::max_element(shared_->times.begin(), shared_->times.end()));
      }
    }
    return times;
  }

 private:
  const uint32_t rank_;
  const uint32_t ranks_;
  Shared* const shared_;
  PinnedBuffer finding_;
  std::unique_ptr<Communicator> communicator_;
  std::vector<std::unique_ptr<StagedBatch>> batches_;
  std::vector<double> planning_;
  CudaStream stream_;
  DeviceBuffer from_;
  DeviceBuffer to_;
  std::shared_ptr<const CudaStream> own_;
  std::unique_ptr<DeviceEntry> entries_[2];
  std::unique_ptr<DeviceStage> device_;
};

// A loop of bfloat16 matrix products that fills the GPU.
class Products {
 public:
  explicit Products(cudaStream_t stream)
      : a_(Filled<uint16_t>(uint64_t{kMatrix} * kMatrix, 0x3C)),
        b_(Filled<uint16_t>(uint64_t{kMatrix} * kMatrix, 0x3C)),
        c_(Filled<uint16_t>(uint64_t{kMatrix} * kMatrix, 0)) {
    Check(cublasCreate(&handle_));
    Check(cublasSetStream(handle_, stream));
  }
  ~Products() { cublasDestroy(handle_); }

  void Step() {
    const float one = 1, zero = 0;
    for (int i = 0; i < kProducts; ++i) {
      Check(cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, kMatrix, kMatrix,
                         kMatrix, &one, a_.data(), CUDA_R_16BF, kMatrix,
                         b_.data(), CUDA_R_16BF, kMatrix, &zero, c_.data(),
                         CUDA_R_16BF, kMatrix, CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT));
    }
  }

 private:
  static void Check(cublasStatus_t status) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    std::fprintf(stderr, "cuBLAS: %d\n", static_cast<int>(status));
    std::exit(1);
  }
  DeviceBuffer a_, b_, c_;
  cublasHandle_t handle_ = nullptr;
};

struct Row {
  std::vector<double> whole, copy_in, exchange, uniform, device_copy, largest,
      launch, planning, alone, beside;
};

void RunRank(Rank* rank, uint64_t pair, uint64_t largest, Row* row) {
  row->copy_in = rank->Measure([&](int i) { rank->CopyIn(i); });
  row->device_copy = rank->Measure([&](int i) { rank->DeviceCopy(i); });
  row->exchange = rank->Measure([&](int i) { rank->Exchange(i); });
  row->uniform = rank->Measure([&](int) { rank->Uniform(pair); });
  row->largest = rank->Measure([&](int) { rank->Uniform(largest); });
  row->whole = rank->Measure([&](int i) {
    const double begin = Now();
    rank->Launch(i);
    row->launch.push_back(Now() - begin);
    row->planning.push_back(rank->planning(i));
  });
  Products products(rank->other_stream());
  const auto step = [&](bool with) {
    return rank->Measure([&, with](int i) {
      if (with) rank->Launch(i);
      products.Step();
      OrDie(cudaStreamSynchronize(rank->other_stream()), "wait");
    });
  };
  row->alone = step(false);
  row->beside = step(true);
}

void MeasureJob(const char* name, Sizes sizes, uint32_t images,
                uint32_t ranks) {
  const BenchmarkJob job = MakeBenchmarkJob(sizes, images, ranks, kBatches);
  Shared shared(ranks);
  const std::string id = OrDie(MakeNcclId());
  std::vector<Row> rows(ranks);
  std::vector<uint64_t> moved(ranks, 0), read(ranks, 0);
  // The bytes that each micro-batch's largest rank sends or receives.
  std::vector<std::atomic<uint64_t>> most(kBatches);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(job, r, ranks, id, &shared);
      for (uint32_t i = 0; i < kBatches; ++i) {
        const ExchangePlan& plan = rank.batch(i).exchange;
        moved[r] += plan.bytes_sent() / kBatches;
        const uint64_t own = std::max(plan.bytes_sent(), plan.bytes_received());
        uint64_t seen = most[i];
        while (seen < own && !most[i].compare_exchange_weak(seen, own)) {
        }
        read[r] += rank.batch(i).exchange.block.bytes() / kBatches;
      }
      shared.meet.arrive_and_wait();
      uint64_t all = 0;
      for (const uint64_t bytes : moved) all += bytes;
      const uint64_t pair =
          ranks < 2 ? 0 : all / (uint64_t{ranks} * (ranks - 1)) / 256 * 256;
      uint64_t largest = 0;
      for (const auto& bytes : most) largest += bytes / kBatches;
      largest = ranks < 2 ? 0 : largest / (ranks - 1) / 256 * 256;
      RunRank(&rank, pair, largest, &rows[r]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Row& row = rows[0];
  uint64_t all = 0;
  for (const uint64_t bytes : moved) all += bytes;
  const double sum = Quantile(row.copy_in, 0.5) + Quantile(row.uniform, 0.5) +
                     Quantile(row.device_copy, 0.5);
  std::printf("%s, %u a sample, dp %u: %.1f MB read and %.1f MB moved a rank\n",
              name, images, ranks, read[0] / 1e6, all / 1e6 / ranks);
  const auto line = [](const char* what, const std::vector<double>& times) {
    std::printf("  %-44s %9.0f us median, %9.0f us p99\n", what,
                Quantile(times, 0.5), Quantile(times, 0.99));
  };
  line("whole micro-batch", row.whole);
  line("  pinned copy of the block", row.copy_in);
  line("  all-to-all of the bytes moved, even slices", row.uniform);
  line("  device copy of the bytes packed", row.device_copy);
  line("all-to-all of the largest rank's bytes by all", row.largest);
  line("exchange by the plan", row.exchange);
  line("host: launching a micro-batch", row.launch);
  line("host: planning a micro-batch (thread of its own)", row.planning);
  line("step of matrix products alone", row.alone);
  line("step with a micro-batch beside it", row.beside);
  std::printf(
      "  whole micro-batch over the sum %.3f; all-to-all over exchange %.3f, "
      "of the "
      "largest rank's bytes %.3f; "
      "slowdown %.2f %%\n",
      Quantile(row.whole, 0.5) / sum,
      Quantile(row.uniform, 0.5) / Quantile(row.exchange, 0.5),
      Quantile(row.largest, 0.5) / Quantile(row.exchange, 0.5),
      100 * (Quantile(row.beside, 0.5) / Quantile(row.alone, 0.5) - 1));
  std::fflush(stdout);
}

}  // namespace
}  // namespace ballast

int main() {
  using ballast::Sizes;
  const int devices = ballast::DeviceCount();
  for (const int ranks : {2, 4, 8}) {
    if (ranks > devices || (ranks == 2 && devices > 2)) continue;
    for (const int images : {1, 3}) {
      ballast::MeasureJob("receipts", Sizes::kReceipts, images, ranks);
      ballast::MeasureJob("lognormal", Sizes::kLognormal, images, ranks);
    }
  }
}
