#include "tests/trainer_shim/cuda/fake_nccl.h"

#include <algorithm>
#include <utility>

namespace ballast {
namespace {

FakeNccl* fake = nullptr;  // NCCL's functions take no context

}  // namespace

FakeNccl::FakeNccl() { fake = this; }
FakeNccl::~FakeNccl() { fake = nullptr; }

NcclApi FakeNccl::api() const {
  NcclApi api;
  api.CommInitRankConfig = Init;
  api.CommSplit = Split;
  api.CommGetAsyncError = GetAsyncError;
  api.CommAbort = Abort;
  api.CommDestroy = Destroy;
  api.GroupStart = GroupStart;
  api.GroupEnd = GroupEnd;
  api.GetErrorString = ErrorString;
  api.GetLastError = LastError;
  return api;
}

std::vector<std::string> FakeNccl::calls() {
  MutexLock lock(&mutex_);
  return calls_;
}

void FakeNccl::AwaitCall(const std::string& call) {
  MutexLock lock(&mutex_);
  while (std::find(calls_.begin(), calls_.end(), call) == calls_.end()) {
    changed_.Wait(&mutex_);
  }
}

void FakeNccl::Note(const std::string& call) {
  MutexLock lock(&mutex_);
  calls_.push_back(call);
  changed_.NotifyAll();
}

std::string FakeNccl::GetName(ncclComm_t communicator) {
  return communicator == trainers() ? "trainers"
         : communicator == parent() ? "parent"
         : communicator == child()  ? "child"
                                    : "unknown";
}

ncclResult_t FakeNccl::Init(ncclComm_t* communicator, int, ncclUniqueId, int,
                            ncclConfig_t* config) {
  fake->max_ctas.push_back(config->maxCTAs);
  fake->Note(config->blocking == 0 ? "init non-blocking" : "init blocking");
  *communicator = fake->parent();
  return ncclInProgress;
}

ncclResult_t FakeNccl::Split(ncclComm_t from, int, int,
                             ncclComm_t* communicator, ncclConfig_t* config) {
  const bool of_trainers = from == fake->trainers();
  fake->max_ctas.push_back(config->maxCTAs);
  fake->Note(std::string("split ") + fake->GetName(from) +
             (config->blocking == 1 ? " blocking" : " non-blocking"));
  const ncclComm_t made = of_trainers ? fake->parent() : fake->child();
  if (of_trainers && fake->trainers_blocks) {
    *communicator = made;
    return fake->split;
  }
  MutexLock lock(&fake->mutex_);
  *communicator = nullptr;
  fake->splitting_ = communicator;
  fake->made_ = made;
  return ncclInProgress;
}

ncclResult_t FakeNccl::GetAsyncError(ncclComm_t, ncclResult_t* state) {
  MutexLock lock(&fake->mutex_);
  int& looks = fake->splitting_ != nullptr ? fake->looks_to_split
                                           : fake->looks_to_connect;
  *state = ncclInProgress;
  if (looks < 0 || looks-- > 0) return ncclSuccess;
  looks = 0;
  if (fake->splitting_ == nullptr) {
    *state = fake->connected;
    return ncclSuccess;
  }
  *state = fake->split;
  // The state may be known before the new communicator is.
  *std::exchange(fake->splitting_, nullptr) = fake->made_;
  return ncclSuccess;
}

ncclResult_t FakeNccl::Abort(ncclComm_t communicator) {
  fake->Note("abort " + fake->GetName(communicator));
  MutexLock lock(&fake->mutex_);
  fake->aborted_ = true;
  fake->changed_.NotifyAll();
  return ncclSuccess;
}

ncclResult_t FakeNccl::Destroy(ncclComm_t communicator) {
  fake->Note("destroy " + fake->GetName(communicator));
  return ncclSuccess;
}

ncclResult_t FakeNccl::GroupStart() { return ncclSuccess; }

ncclResult_t FakeNccl::GroupEnd() {
  fake->Note("group end");
  MutexLock lock(&fake->mutex_);
  while (fake->group_waits && !fake->aborted_)
    fake->changed_.Wait(&fake->mutex_);
  return fake->aborted_ ? ncclInternalError : ncclSuccess;
}

const char* FakeNccl::ErrorString(ncclResult_t) { return "an error"; }
const char* FakeNccl::LastError(ncclComm_t) { return "its cause"; }

}  // namespace ballast
