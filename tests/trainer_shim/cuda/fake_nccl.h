#ifndef BALLAST_TESTS_TRAINER_SHIM_CUDA_FAKE_NCCL_H_
#define BALLAST_TESTS_TRAINER_SHIM_CUDA_FAKE_NCCL_H_

#include <nccl.h>

#include <string>
#include <vector>

#include "common/mutex.h"
#include "trainer_shim/cuda/nccl_connect.h"

namespace ballast {

// NCCL as one rank sees it, played by a test: how long connecting and splitting
// take, and how they end. One at a time in a process. Thread-safe.
class FakeNccl {
 public:
  FakeNccl();
  ~FakeNccl();

  NcclApi api() const;
  // The trainer's communicator, of which `parent` is split off.
  ncclComm_t trainers() { return reinterpret_cast<ncclComm_t>(&trainers_); }
  ncclComm_t parent() { return reinterpret_cast<ncclComm_t>(&parent_); }
  ncclComm_t child() { return reinterpret_cast<ncclComm_t>(&child_); }

  // Number of looks at which connecting, or splitting, is still in progress;
  // -1: always. And the result that follows.
  int looks_to_connect = 0;
  ncclResult_t connected = ncclSuccess;
  int looks_to_split = 0;
  ncclResult_t split = ncclSuccess;
  // The trainer's ncclCommSplit ends at once, as that of a blocking one.
  bool trainers_blocks = false;
  // ncclGroupEnd waits until the parent is aborted.
  bool group_waits = false;

  // maxCTAs of each communicator, in the order of calls.
  std::vector<int> max_ctas;

  // "init non-blocking", "split blocking", "abort parent", ...
  std::vector<std::string> calls();
  void AwaitCall(const std::string& call);

 private:
  static ncclResult_t Init(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*);
  static ncclResult_t Split(ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*);
  static ncclResult_t GetAsyncError(ncclComm_t, ncclResult_t*);
  static ncclResult_t Abort(ncclComm_t);
  static ncclResult_t Destroy(ncclComm_t);
  static ncclResult_t GroupStart();
  static ncclResult_t GroupEnd();
  static const char* ErrorString(ncclResult_t);
  static const char* LastError(ncclComm_t);

  void Note(const std::string& call);
  std::string GetName(ncclComm_t communicator);

  int trainers_ = 0;
  int parent_ = 0;
  int child_ = 0;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mutex_);
  // Where the last split goes that is not done, and what it makes.
  ncclComm_t* splitting_ ABSL_GUARDED_BY(mutex_) = nullptr;
  ncclComm_t made_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_TRAINER_SHIM_CUDA_FAKE_NCCL_H_
