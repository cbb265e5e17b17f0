#ifndef BALLAST_TESTS_SIMULATION_SIM_REVISIONS_H_
#define BALLAST_TESTS_SIMULATION_SIM_REVISIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/revision_service.pb.h"
#include "server/delivery/file_sample_builder.h"
#include "server/serve/service/revision_keeper.h"
#include "server/serve/service/revision_member.h"
#include "tests/simulation/sim_data.h"
#include "tests/simulation/sim_network.h"

namespace ballast {

// What a simulated server has of a job that changes while it runs. A
// configuration is the number of a version of the data ("7"): a change gives
// the same samples other bytes, under another fingerprint.

// The process that a write of its disk may kill.
class SimProcess {
 public:
  virtual ~SimProcess() = default;
  // It is gone: what its threads still do has no effect.
  virtual bool dead() const = 0;
  // Called around each write of serve.revisions. Returns false if the process
  // dies here.
  virtual bool SurvivesWrite(bool before) = 0;
};

// The real file at `path`, behind a disk that takes time and fails (SimDisk).
// A planted defect: `forgets` loses each write and says that it is done.
std::unique_ptr<RevisionStore> MakeSimRevisionStore(std::string path,
                                                    const SimDisk* disk,
                                                    SimProcess* process,
                                                    bool forgets);

// Calls of the RevisionService over the simulated network, from `node`.
std::unique_ptr<RevisionPeers> MakeSimRevisionPeers(SimNetwork* network,
                                                    int node);

// Opens versions as revisions of `job`.
class SimRevisedJob final : public RevisedJob {
 public:
  using Builder = BuilderOfSteps<SampleBuilder>;

  SimRevisedJob(const SyntheticJob& job, const Scheduler* own,
                const SimBuilderOptions& data, const SimDisk* disk)
      : RevisedJob(own), job_(job), data_(data), disk_(disk) {}

  absl::StatusOr<std::unique_ptr<Candidate>> Open(
      const std::string& config, uint64_t first_step) const override;
  void Apply(std::unique_ptr<Candidate> candidate) override;
  size_t revisions() const override { return schedulers_.size(); }

  // Makes the loader's builder.
  std::unique_ptr<SampleBuilder> MakeBuilder();

 private:
  const SyntheticJob job_;
  const SimBuilderOptions data_;
  const SimDisk* const disk_;
  Builder* builder_ = nullptr;
  std::vector<std::unique_ptr<Scheduler>> schedulers_;
};

// An offer of a change, and how it ended for the client.
struct SimOffer {
  int version = 0;
  uint64_t first_step = 0;
  absl::Status end;
};

// What all servers and clients of a job have seen of its changes.
struct SimChanges {
  std::vector<SimOffer> offers;
  // The fingerprints of each step's schedule that any server has given to a
  // rank.
  std::map<uint64_t, std::set<std::string>> given;
  // What each server knows at the end.
  std::vector<v1::GetRevisionsResponse> known;
};

// The first step of each version of the data after the job's own, as the first
// server knows it.
std::map<uint64_t, int> VersionsOf(const SimChanges& changes);

// Returns each violation:
//   - all servers end with the same changes, and wait for no decision
//   - an offer that was accepted holds, and one that was refused does not
//   - all servers give one schedule of a step: of the revision that it has at
//     the end
std::vector<std::string> CheckChanges(const SyntheticJob& job,
                                      const SimChanges& changes);

}  // namespace ballast

#endif  // BALLAST_TESTS_SIMULATION_SIM_REVISIONS_H_
