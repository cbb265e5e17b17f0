#ifndef BALLAST_SERVER_JOB_JOB_SETUP_H_
#define BALLAST_SERVER_JOB_JOB_SETUP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "proto/job.pb.h"
#include "server/config/config_loader.h"
#include "server/data/index/index_options.h"
#include "server/delivery/ahead_fetcher.h"
#include "server/media/image_plan/image_text.h"
#include "server/recipe/image_recipe.h"
#include "server/sample/sample_source.h"
#include "server/schedule/scheduler.h"
#include "server/text/model_text.h"
#include "server/text/text_token.h"

namespace ballast {

// Gives what all jobs of this process share its settings: storage, recipes.
// Errors: as Storage::Configure.
absl::Status ConfigureProcess(const v1::Config& config);

// The key of everything that the indexes of a loaded `config` depend on.
// `tokenizer` is the tokenizer that its model names; the model's token ids
// agree with it (OpenModelTokenizer).
IndexKey GetIndexKey(const v1::Config& config, const Tokenizer& tokenizer);

// A configuration with its tokenizer, sources and scheduler opened: everything
// that serving or planning needs. Each part refers to the parts before it.
// Move-only.
struct OpenedJob {
  v1::Config config;
  // As it was loaded: without what the tokenizer adds to `config`.
  LoadedConfig loaded;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<const ModelText> text;
  // sources[i] belongs to config.sources(i).
  std::vector<std::unique_ptr<SampleSource>> sources;
  std::unique_ptr<Scheduler> scheduler;
  // Sources whose indexes leave out bad records.
  std::vector<v1::LeftOut> left_out;
  // Paths of the sources' indexes, for messages.
  std::vector<std::string> index_files;

  std::vector<const SampleSource*> source_pointers() const;
};

// Opens the tokenizer, every source through its index, and the scheduler.
// Blocks on the disk. Errors: FAILED_PRECONDITION (an index is missing, damaged
// or stale, or leaves out more bad records than max_bad allows), UNIMPLEMENTED
// (settings that the scheduler does not support), and as MakeTokenizer,
// OpenModelRecipe, OpenAnySource, OpenPlanFile, Scheduler::Create; each names
// the key.
absl::StatusOr<OpenedJob> OpenJob(const LoadedConfig& config);

// The images of the sample at a position of `job`, with these sides, as their
// plans see them. Errors: as Scheduler::OfSplit.
absl::StatusOr<SampleImages> SampleImagesAt(const OpenedJob& job,
                                            v1::Split split, uint64_t position,
                                            absl::Span<const ImageSize> sides);

// Opens model.recipe of a loaded `config`, and names it by what it is: servers
// and indexes compare the name. Null without one. Errors: as ImageRecipe::Open;
// INVALID_ARGUMENT (settings that its plans do not go with); each names the
// key.
absl::StatusOr<std::shared_ptr<const ImageRecipe>> OpenModelRecipe(
    v1::Config* config);

// This server's entry in topology.servers.
struct ServerIdentity {
  std::string name;    // its address there
  uint32_t ranks = 0;  // served, over all modules
  // The first rank of each module that it serves, in order of module.
  std::vector<v1::Role> first_ranks;
  // All ranks of each module that it serves.
  std::map<v1::Module, std::set<uint32_t>> ranks_of;
};

// Finds the entry by serve.listen. Errors: NOT_FOUND, INVALID_ARGUMENT (see
// FindServer).
absl::StatusOr<ServerIdentity> IdentifyServer(const v1::Config& config);

// Makes the fetcher that reads ahead for the ranks of `identity`, by the
// schedules of `scheduler`, null for the job's own; null if no source is in a
// store. `job` and `scheduler` must outlive it. Errors: as GetRule.
absl::StatusOr<std::unique_ptr<AheadFetcher>> MakeAheadFetcher(
    const OpenedJob& job, const ServerIdentity& identity,
    const Scheduler* scheduler = nullptr);

// The address of the server at which the ranks of each group rendezvous
// (LoaderService.Rendezvous): topology.meeting, else the first of
// topology.servers.
std::string RendezvousAddress(const v1::Config& config);

// The outcome for one source: of its recipe, or of the model's for its
// images.
struct RecipeCheck {
  std::string source;
  bool of_images = false;
  uint64_t samples = 0;  // made again
};

// Cooks `samples` samples of each source with a recipe, spread over its index,
// twice more: in two processes, backwards and forwards. Likewise with
// model.recipe the plans and pixels of two epochs. Every index must be up to
// date. Errors: FAILED_PRECONDITION (a sample is another than the indexed one,
// or has other plans or pixels the second time, with its place); as OpenSource,
// OpenModelRecipe and OpenModelTokenizer.
absl::StatusOr<std::vector<RecipeCheck>> VerifyRecipes(
    const LoadedConfig& config, uint64_t samples);

}  // namespace ballast

#endif  // BALLAST_SERVER_JOB_JOB_SETUP_H_
