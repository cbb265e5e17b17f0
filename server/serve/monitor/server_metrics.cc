// ServerState::Metrics. docs/metrics.md describes every family, in this order;
// a test compares the two.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/machine.h"
#include "common/python_helper.h"
#include "proto/schedule/module.h"
#include "server/serve/monitor/server_state.h"
#include "server/serve/monitor/wanted_workers.h"

namespace ballast {
namespace {

using Client = v1::GetStatusResponse::Client;

// Ranks of a module that have their own metrics; larger modules are summed up.
constexpr int kMaxRanks = 64;
// Sources that have their own metric; bad samples of further ones count as
// "other".
constexpr size_t kMaxSources = 32;

std::string GetName(v1::Module module) {
  return std::string(ModuleName(module));
}

void AddProcess(double start_seconds, FamilyList* list) {
  list->Begin("process_start_time_seconds", FamilyList::kGauge,
              "When the server began to serve, since 1970.");
  list->Add(start_seconds);
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * time.tv_usec;
  };
  list->Begin("process_cpu_seconds_total", FamilyList::kCounter,
              "User and system time of the process.");
  list->Add(seconds(usage.ru_utime) + seconds(usage.ru_stime));
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0;
  uint64_t resident = 0;
  if (statm >> size >> resident) {
    list->Begin("process_resident_memory_bytes", FamilyList::kGauge,
                "Resident memory of the process.");
    list->Add(static_cast<double>(resident) * sysconf(_SC_PAGESIZE));
  }
}

void AddDecoders(const HelperCounters& decoders, const std::string& media,
                 FamilyList* list) {
  const std::string name = absl::StrCat("ballast_", media, "_decoder");
  list->Begin(absl::StrCat(name, "_starts_total"), FamilyList::kCounter,
              absl::StrCat("Processes started to decode ", media, "."));
  list->Add(decoders.starts.value());
  list->Begin(absl::StrCat(name, "_ends_total"), FamilyList::kCounter,
              "Of these, those that ended or were ended, by the reason.");
  for (size_t i = 0; i < kHelperEnds; ++i) {
    list->Add(decoders.ends[i].value(), {{"reason", kHelperEndNames[i]}});
  }
}

// A family that counts the decoded media of a kind.
struct DecodedFamily {
  MediumKind kind;
  const char* name;
  const char* help;
  DecodedCounters BuildInstruments::*encoder;
  const char* use;  // of the encoder
};

constexpr DecodedFamily kDecodedFamilies[] = {
    {MediumKind::kImage, "ballast_images_total",
     "Images decoded: for vision, or once more because language had to know "
     "whether they can be; and images sent encoded, for their owners to "
     "decode.",
     &BuildInstruments::vision, "vision"},
    {MediumKind::kAudio, "ballast_clips_total",
     "Clips of audio whose features were made: for audio, or once more because "
     "another module had to know whether they can be.",
     &BuildInstruments::audio, "audio"},
    {MediumKind::kVideo, "ballast_videos_total",
     "Videos decoded: for vision, or once more because language had to know "
     "whether they can be.",
     &BuildInstruments::vision, "vision"},
};

void AddDecoded(const BuildInstruments& build, FamilyList* list) {
  for (const DecodedFamily& family : kDecodedFamilies) {
    list->Begin(family.name, FamilyList::kCounter, family.help);
    list->Add((build.*family.encoder).media[family.kind].value(),
              {{"use", family.use}});
    list->Add(build.check.media[family.kind].value(), {{"use", "check"}});
    if (family.kind == MediumKind::kImage) {
      list->Add(build.images_encoded.value(), {{"use", "encoded"}});
    } else if (family.kind == MediumKind::kAudio) {
      AddDecoders(build.audio_decoders, "audio", list);
    }
  }
  list->Begin("ballast_video_frames_total", FamilyList::kCounter,
              "Frames of these videos that were wanted.");
  list->Add(build.vision.frames.value(), {{"use", "vision"}});
  list->Add(build.check.frames.value(), {{"use", "check"}});
  AddDecoders(build.video_decoders, "video", list);
}

// The processes that run templates and recipes.
void AddPythonHelpers(FamilyList* list) {
  list->Begin("ballast_python_helper_starts_total", FamilyList::kCounter,
              "Processes of Python started, by what they run.");
  for (size_t use = 0; use < kPythonUseNames.size(); ++use) {
    list->Add(GetCounters(static_cast<PythonUse>(use)).starts.value(),
              {{"use", kPythonUseNames[use]}});
  }
  list->Begin("ballast_python_helper_ends_total", FamilyList::kCounter,
              "Of these, those that ended or were ended, by the reason.");
  for (size_t use = 0; use < kPythonUseNames.size(); ++use) {
    for (size_t i = 0; i < kHelperEnds; ++i) {
      list->Add(
          GetCounters(static_cast<PythonUse>(use)).ends[i].value(),
          {{"use", kPythonUseNames[use]}, {"reason", kHelperEndNames[i]}});
    }
  }
}

void AddBuilding(const BuildInstruments& build, uint64_t warnings,
                 FamilyList* list) {
  AddDecoded(build, list);
  AddPythonHelpers(list);
  list->Begin("ballast_image_read_bytes_total", FamilyList::kCounter,
              "Bytes of these media, as stored in their files.");
  list->Add(build.media_bytes.value());
  list->Begin("ballast_tokens_total", FamilyList::kCounter,
              "Tokens of the texts built.");
  list->Add(build.tokens.value());
  list->Begin("ballast_image_warnings_total", FamilyList::kCounter,
              "Images with faults that were decoded past; they count as good.");
  list->Add(warnings);
  list->Begin("ballast_stage_seconds", FamilyList::kHistogram,
              "Time of a stage: read_images and read_text of a sample, decode "
              "and resize of an image, decode_video of a video, decode_audio "
              "of a clip of audio, tokenise of a text.");
  list->Add(build.read_images.Read(), {{"stage", "read_images"}});
  list->Add(build.decode.Read(), {{"stage", "decode"}});
  list->Add(build.resize.Read(), {{"stage", "resize"}});
  list->Add(build.decode_video.Read(), {{"stage", "decode_video"}});
  list->Add(build.decode_audio.Read(), {{"stage", "decode_audio"}});
  list->Add(build.read_text.Read(), {{"stage", "read_text"}});
  list->Add(build.tokenise.Read(), {{"stage", "tokenise"}});
}

void AddPulls(const PullInstruments& pull, FamilyList* list) {
  list->Begin("ballast_block_wait_seconds", FamilyList::kHistogram,
              "How long a stream waited until its next block was built.");
  list->Add(pull.wait.Read());
  list->Begin("ballast_block_hold_back_seconds", FamilyList::kHistogram,
              "How long a block that was built waited for its client's room.");
  list->Add(pull.hold_back.Read());
  list->Begin("ballast_block_send_seconds", FamilyList::kHistogram,
              "From a block's first message to the end of its last write.");
  list->Add(pull.send.Read());
  list->Begin("ballast_blocks_sent_total", FamilyList::kCounter,
              "Blocks handed to clients.");
  list->Add(pull.blocks_shared.value(), {{"way", "shared_memory"}});
  list->Add(pull.blocks_streamed.value(), {{"way", "stream"}});
  list->Begin("ballast_sent_bytes_total", FamilyList::kCounter,
              "Bytes of blocks handed to clients.");
  list->Add(pull.bytes_shared.value(), {{"way", "shared_memory"}});
  list->Add(pull.bytes_streamed.value(), {{"way", "stream"}});
}

void AddLoader(const LoaderStats& loader, uint64_t memory, FamilyList* list) {
  const auto add = [list](absl::string_view name, v1::MetricFamily::Type type,
                          double value, absl::string_view help) {
    list->Begin(name, type, help);
    list->Add(value);
  };
  list->Begin("ballast_blocks", FamilyList::kGauge,
              "Blocks that are being built, and those that are built and "
              "wait for their stream.");
  list->Add(loader.blocks_in_work, {{"state", "in_work"}});
  list->Add(loader.blocks_ready, {{"state", "ready"}});
  add("ballast_blocks_built_total", FamilyList::kCounter, loader.blocks_built,
      "Blocks built.");
  add("ballast_blocks_failed_total", FamilyList::kCounter, loader.blocks_failed,
      "Blocks given up: a sample failed, or nobody wanted them any more.");
  add("ballast_blocks_reused_total", FamilyList::kCounter, loader.blocks_reused,
      "Blocks that a stream found in memory, built or being built.");
  add("ballast_schedules_found_total", FamilyList::kCounter,
      loader.schedules_found, "Schedules that were found in memory.");
  add("ballast_schedules_computed_total", FamilyList::kCounter,
      loader.schedules_computed, "Schedules that had to be computed.");
  add("ballast_samples_waiting", FamilyList::kGauge, loader.samples_waiting,
      "Samples of blocks in memory that wait for a worker.");
  add("ballast_errands_waiting", FamilyList::kGauge, loader.tasks_waiting,
      "Plans and other short work that waits for a worker.");
  add("ballast_workers", FamilyList::kGauge, loader.workers,
      "Threads that build samples.");
  add("ballast_workers_busy", FamilyList::kGauge, loader.workers_busy,
      "Of these, how many have work.");
  add("ballast_memory_in_use_bytes", FamilyList::kGauge, loader.memory_in_use,
      "Memory of blocks that are held or being built.");
  add("ballast_memory_idle_bytes", FamilyList::kGauge, loader.memory_idle,
      "Memory of blocks that nobody holds and that may be wanted again.");
  add("ballast_memory_limit_bytes", FamilyList::kGauge, memory,
      "serve.memory: the bound on memory in use.");
  add("ballast_streams_short_of_memory", FamilyList::kGauge,
      loader.streams_short_of_memory,
      "Streams whose next block waits for a place in memory.");
  add("ballast_streams_awaiting_vision", FamilyList::kGauge,
      loader.streams_awaiting_encoders,
      "Streams of language whose next block waits until vision's is built.");
}

void AddDecodeMemory(const DecodeBudget& budget, FamilyList* list) {
  const DecodeBudget::Usage usage = budget.usage();
  list->Begin("ballast_decode_memory_in_use_bytes", FamilyList::kGauge,
              "Memory taken for the images and videos being decoded, as "
              "computed from their headers.");
  list->Add(static_cast<double>(usage.in_use));
  list->Begin("ballast_decode_memory_limit_bytes", FamilyList::kGauge,
              "serve.decode_memory: the bound on it.");
  list->Add(static_cast<double>(budget.bytes()));
  list->Begin("ballast_decodes_waiting", FamilyList::kGauge,
              "Images and videos that wait for this memory.");
  list->Add(static_cast<double>(usage.waiting));
}

void AddMachineMemory(uint64_t stated, FamilyList* list) {
  list->Begin("ballast_stated_memory_bytes", FamilyList::kGauge,
              "serve.memory, serve.decode_memory and all else that the server "
              "keeps to.");
  list->Add(static_cast<double>(stated));
  list->Begin("ballast_machine_memory_bytes", FamilyList::kGauge,
              "Memory that the server may use: the machine's, or the limit of "
              "its cgroup.");
  list->Add(static_cast<double>(MachineMemory()));
}

void AddProblems(const Problems& problems, const FailingFiles& files,
                 uint64_t failed_pulls, FamilyList* list) {
  std::map<absl::string_view, uint64_t> by_kind;
  for (const absl::string_view kind : kProblemKinds) by_kind[kind] = 0;
  for (const auto& problem : problems) ++by_kind[problem.kind()];
  list->Begin("ballast_serving", FamilyList::kGauge,
              "1 if health checks are told SERVING, else 0.");
  list->Add(by_kind["not_serving"] == 0 ? 1 : 0);
  list->Begin("ballast_problems", FamilyList::kGauge,
              "Conditions that need a person, by kind; ballastctl status "
              "describes them.");
  for (const absl::string_view kind : kProblemKinds) {
    list->Add(static_cast<double>(by_kind[kind]),
              {{"kind", std::string(kind)}});
  }
  list->Begin("ballast_read_failures_total", FamilyList::kCounter,
              "Samples that could not be read, for a cause that may pass.");
  list->Add(static_cast<double>(files.failures()));
  list->Begin("ballast_reads_tried_again_total", FamilyList::kCounter,
              "Reads that failed and were tried again at once.");
  list->Add(static_cast<double>(files.tried_again()));
  list->Begin("ballast_pulls_failed_total", FamilyList::kCounter,
              "Pulls that ended since the server could not go on.");
  list->Add(static_cast<double>(failed_pulls));
}

void AddConnections(const ConnectionPlaces& places, FamilyList* list) {
  list->Begin("ballast_connections", FamilyList::kGauge,
              "Open connections at serve.listen.");
  list->Add(static_cast<double>(places.open()));
  list->Begin("ballast_connections_limit", FamilyList::kGauge,
              "As many as the process's descriptors allow.");
  list->Add(static_cast<double>(places.most()));
  list->Begin("ballast_connections_total", FamilyList::kCounter,
              "Connections that arrived.");
  list->Add(static_cast<double>(places.accepted.value()));
  list->Begin("ballast_connections_closed_total", FamilyList::kCounter,
              "Of these, those that the server closed: for want of a place, or "
              "since they were silent or broke a bound.");
  list->Add(static_cast<double>(places.refused.value()),
            {{"reason", "no_place"}});
  list->Add(static_cast<double>(places.expelled.value()),
            {{"reason", "bound"}});
  list->Begin("ballast_listeners_reopened_total", FamilyList::kCounter,
              "Times that an address of serve.listen had to be opened again.");
  list->Add(static_cast<double>(places.reopened.value()));
}

void AddBadData(const v1::GetStatusResponse& status, uint64_t placeholders,
                FamilyList* list) {
  std::map<std::string, uint64_t> by_source;
  for (const auto& bad : status.bad_samples()) {
    const std::string source = bad.sample().substr(0, bad.sample().find(':'));
    const bool own =
        by_source.count(source) != 0 || by_source.size() < kMaxSources;
    ++by_source[own ? source : "other"];
  }
  list->Begin("ballast_bad_samples", FamilyList::kGauge,
              "Samples that could not be read or decoded, each once.");
  for (const auto& [source, count] : by_source) {
    list->Add(count, {{"source", source}});
  }
  if (by_source.empty()) list->Add(0, {{"source", ""}});
  list->Begin("ballast_bad_samples_limit", FamilyList::kGauge,
              "serve.max_bad_samples: one more ends the streams.");
  list->Add(status.max_bad_samples());
  list->Begin("ballast_placeholders_total", FamilyList::kCounter,
              "Times that a placeholder took a bad sample's place in a block.");
  list->Add(placeholders);
  double longest = 0;
  for (const auto& stall : status.stalls()) {
    longest = std::max(longest, stall.seconds());
  }
  list->Begin(
      "ballast_stalls", FamilyList::kGauge,
      "Samples in one stage, and schedules that are being computed, for "
      "serve.stall_after or longer.");
  list->Add(status.stalls_size());
  list->Begin("ballast_stall_seconds", FamilyList::kGauge,
              "How long the longest of them has lasted; 0: no stall.");
  list->Add(longest);
}

void AddClients(const std::vector<ClientBoard::Client>& clients,
                FamilyList* list) {
  std::map<v1::Module, std::map<ClientBoard::State, uint64_t>> counts;
  // The nearest and the furthest step of each split.
  std::map<v1::Split, std::pair<uint64_t, uint64_t>> steps;
  double held = 0;
  for (const ClientBoard::Client& client : clients) {
    ++counts[client.role.module()][client.state];
    const std::pair<uint64_t, uint64_t> own = {client.step, client.step};
    auto& [nearest, furthest] =
        steps.try_emplace(client.role.split(), own).first->second;
    nearest = std::min(nearest, client.step);
    furthest = std::max(furthest, client.step);
    held += client.held_bytes;
  }
  list->Begin("ballast_clients", FamilyList::kGauge,
              "Open Pulls: waiting for a block, being sent one, or holding "
              "back the next.");
  for (const auto& [module, states] : counts) {
    for (const auto& [state, name] :
         {std::make_pair(Client::STATE_WAITS_FOR_BLOCK, "waits_for_block"),
          std::make_pair(Client::STATE_SENDING, "sending"),
          std::make_pair(Client::STATE_HOLDS_BACK, "holds_back")}) {
      const auto count = states.find(state);
      list->Add(count == states.end() ? 0 : count->second,
                {{"module", GetName(module)}, {"state", name}});
    }
  }
  list->Begin("ballast_client_lag_steps", FamilyList::kGauge,
              "Steps that the last client is behind the first of its split.");
  uint64_t lag = 0;
  for (const auto& [split, range] : steps) {
    lag = std::max(lag, range.second - range.first);
  }
  if (!clients.empty()) list->Add(lag);
  list->Begin("ballast_client_held_bytes", FamilyList::kGauge,
              "Bytes of blocks that all clients hold or are being sent.");
  list->Add(held);
}

void AddWantedWorkers(const LoaderStats& loader,
                      const std::vector<ClientBoard::Client>& clients,
                      FamilyList* list) {
  WorkersLoad load;
  load.busy = loader.workers_busy;
  load.samples_waiting = loader.samples_waiting;
  load.streams = clients.size();
  load.streams_waiting = std::count_if(
      clients.begin(), clients.end(), [](const ClientBoard::Client& client) {
        return client.state == Client::STATE_WAITS_FOR_BLOCK;
      });
  list->Begin("ballast_wanted_workers", FamilyList::kGauge,
              "Workers that this server's ranks need, for a tier of loaders "
              "that grows and shrinks by their sum.");
  list->Add(WantedWorkers(load));
}

void AddRankTimes(const TimingStore& timings, FamilyList* list) {
  list->Begin("ballast_rank_seconds", FamilyList::kHistogram,
              "What ranks reported of a micro-batch: train, wait, copy, "
              "exchange, decode, pack.");
  constexpr const char* kNames[] = {"train",    "wait",   "copy",
                                    "exchange", "decode", "pack"};
  for (const ModuleKind& kind : ModuleKinds()) {
    for (int phase = 0; phase < TimingStore::kPhases; ++phase) {
      const DurationHistogram::Snapshot times =
          (*timings.phases(kind.module))[phase].Read();
      if (times.count() == 0) continue;
      list->Add(times,
                {{"module", std::string(kind.name)}, {"phase", kNames[phase]}});
    }
  }
}

// The smallest, mean and largest of `loads`.
void AddLoads(const google::protobuf::RepeatedField<double>& loads,
              const std::string& module, const char* when, FamilyList* list) {
  if (loads.empty()) return;
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
  const double mean =
      std::accumulate(loads.begin(), loads.end(), 0.0) / loads.size();
  list->Add(*least, {{"module", module}, {"when", when}, {"of", "min"}});
  list->Add(mean, {{"module", module}, {"when", when}, {"of", "mean"}});
  list->Add(*most, {{"module", module}, {"when", when}, {"of", "max"}});
}

void AddBalance(const v1::StepBalance& balance, FamilyList* list) {
  list->Begin("ballast_step", FamilyList::kGauge,
              "The furthest step that a client has got a block of.");
  list->Add(balance.step());
  list->Begin("ballast_balance_spread_ratio", FamilyList::kGauge,
              "The step's largest load of a rank by the mean, micro-batch by "
              "micro-batch; 1 is even.");
  for (const v1::ModuleBalance& module : balance.modules()) {
    list->Add(module.spread_before(),
              {{"module", GetName(module.module())}, {"when", "before"}});
    list->Add(module.spread_after(),
              {{"module", GetName(module.module())}, {"when", "after"}});
  }
  list->Begin("ballast_balance_load", FamilyList::kGauge,
              "The step's load of a rank, in the unit of balance.cost.");
  for (const v1::ModuleBalance& module : balance.modules()) {
    AddLoads(module.load_before(), GetName(module.module()), "before", list);
    AddLoads(module.load_after(), GetName(module.module()), "after", list);
  }
  list->Begin("ballast_rank_load", FamilyList::kGauge,
              "The same of each rank, of modules of up to 64 ranks.");
  for (const v1::ModuleBalance& module : balance.modules()) {
    if (module.load_after_size() > kMaxRanks) continue;
    for (int r = 0; r < module.load_after_size(); ++r) {
      for (const bool after : {false, true}) {
        list->Add(after ? module.load_after(r) : module.load_before(r),
                  {{"module", GetName(module.module())},
                   {"rank", absl::StrCat(r)},
                   {"when", after ? "after" : "before"}});
      }
    }
  }
}

void AddMoves(const std::map<v1::Module, BalanceBoard::Sums>& sums,
              FamilyList* list) {
  list->Begin("ballast_scheduled_samples_total", FamilyList::kCounter,
              "Samples of the whole job in the steps that this server has "
              "seen begin.");
  for (const auto& [module, sum] : sums) {
    list->Add(sum.samples, {{"module", GetName(module)}});
  }
  list->Begin("ballast_scheduled_bytes_total", FamilyList::kCounter,
              "Bytes of their payload.");
  for (const auto& [module, sum] : sums) {
    list->Add(sum.bytes, {{"module", GetName(module)}});
  }
  list->Begin("ballast_moved_samples_total", FamilyList::kCounter,
              "Of these samples, those whose owner is not their reader.");
  for (const auto& [module, sum] : sums) {
    list->Add(sum.within_servers.samples(),
              {{"module", GetName(module)}, {"scope", "within_servers"}});
    list->Add(sum.between_servers.samples(),
              {{"module", GetName(module)}, {"scope", "between_servers"}});
  }
  list->Begin("ballast_moved_bytes_total", FamilyList::kCounter,
              "Bytes of their payload.");
  for (const auto& [module, sum] : sums) {
    list->Add(sum.within_servers.bytes(),
              {{"module", GetName(module)}, {"scope", "within_servers"}});
    list->Add(sum.between_servers.bytes(),
              {{"module", GetName(module)}, {"scope", "between_servers"}});
  }
}

void AddStore(const v1::GetStatusResponse::Storage& storage,
              const StorageCounters& counters, FamilyList* list) {
  list->Begin("ballast_store_requests_total", FamilyList::kCounter,
              "Requests to object stores.");
  list->Add(storage.requests());
  list->Begin("ballast_store_errors_total", FamilyList::kCounter,
              "Of these, those that failed after their retries.");
  list->Add(storage.errors());
  list->Begin("ballast_store_read_bytes_total", FamilyList::kCounter,
              "Bytes that object stores have sent.");
  list->Add(storage.fetched_bytes());
  list->Begin("ballast_store_hits_total", FamilyList::kCounter,
              "Reads of samples in a store whose bytes were there already: in "
              "memory, or in the cache on disk.");
  list->Add(storage.memory_hits(), {{"where", "memory"}});
  list->Add(storage.cache_hits(), {{"where", "cache"}});
  list->Begin(
      "ballast_store_stall_seconds", FamilyList::kHistogram,
      "How long a reader waited for bytes that were in the store alone.");
  list->Add(counters.stalls.Read());
  list->Begin("ballast_cache_bytes", FamilyList::kGauge,
              "Bytes in the cache on disk, of all servers that share it.");
  list->Add(storage.cache_bytes());
  list->Begin("ballast_cache_limit_bytes", FamilyList::kGauge,
              "storage.cache.size: the bound on them; 0: there is no cache.");
  list->Add(storage.cache_size());
  list->Begin("ballast_cache_evicted_total", FamilyList::kCounter,
              "Entries that this server removed to make room.");
  list->Add(storage.cache_evicted());
  list->Begin("ballast_cache_damaged_total", FamilyList::kCounter,
              "Entries that were removed because their checksum did not fit.");
  list->Add(storage.cache_damaged());
  list->Begin("ballast_cache_failures_total", FamilyList::kCounter,
              "Entries that the disk of the cache did not take or give.");
  list->Add(counters.cache_failures.value());
}

}  // namespace

std::vector<v1::MetricFamily> ServerState::Metrics() const {
  FamilyList list;
  AddProcess(start_seconds_, &list);
  AddBuilding(*sources_.build, sources_.builder->images_with_warnings(), &list);
  AddPulls(*sources_.pull, &list);
  AddLoader(sources_.loader->stats(), sources_.memory, &list);
  AddDecodeMemory(sources_.builder->decode_budget(), &list);
  AddMachineMemory(sources_.stated_memory, &list);
  v1::GetStatusResponse stored;
  AddStorage(&stored);
  if (stored.has_storage()) {
    AddStore(stored.storage(), sources_.storage->counters(), &list);
  }
  const std::vector<ClientBoard::Client> clients = sources_.clients->List();
  AddProblems(FindProblems(clients), sources_.build->failing_files,
              sources_.pull->failed.value(), &list);
  if (sources_.connections != nullptr) {
    AddConnections(*sources_.connections, &list);
  }
  if (sources_.certificate != nullptr) {
    list.Begin("ballast_certificate_end_seconds", FamilyList::kGauge,
               "When the certificate in use ends, since 1970.");
    list.Add(absl::ToDoubleSeconds(sources_.certificate().first -
                                   absl::UnixEpoch()));
  }
  v1::GetStatusResponse bad;
  AddBadData(&bad);
  ballast::AddBadData(bad, sources_.build->placeholders.value(), &list);
  AddClients(clients, &list);
  AddWantedWorkers(sources_.loader->stats(), clients, &list);
  AddRankTimes(*sources_.timings, &list);
  if (const BalanceBoard::Shared balance = sources_.balance->Current()) {
    AddBalance(*balance, &list);
  }
  AddMoves(sources_.balance->sums(), &list);
  return std::move(list).Take();
}

}  // namespace ballast
