#include "server/config/config_defaults.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/schedule/module.h"
#include "server/config/family_profile.h"
#include "server/config/model_profile.h"
#include "server/config/path_pattern.h"
#include "server/config/rank_list.h"
#include "server/config/topology.h"

namespace ballast {
namespace {

void DefaultMock(const KeyReport& keys, const std::string& key,
                 v1::Source* source) {
  if (!keys.Has(ChildKey(key, "vocabulary"))) source->set_vocabulary(256);
  if (source->lengths().mode() == v1::Source::Lengths::MODE_LOGNORMAL &&
      !keys.Has(ChildKey(key, "lengths.count"))) {
    source->mutable_lengths()->set_count(1'000'000);
  }
  if (!source->has_images()) return;
  v1::Source::Images& images = *source->mutable_images();
  if (!keys.Has(ChildKey(key, "images.max"))) {
    images.set_max(std::max(1u, images.min()));
  }
  if (!keys.Has(ChildKey(key, "images.aspect"))) images.set_aspect(1);
}

void DefaultSources(const KeyReport& keys, v1::Config* config) {
  for (int i = 0; i < config->sources_size(); ++i) {
    v1::Source& source = *config->mutable_sources(i);
    const std::string key = ItemKey("sources", i);
    if (!keys.Has(ChildKey(key, "weight"))) source.set_weight(1);
    if (!keys.Has(ChildKey(key, "media_root")) &&
        source.format() == v1::Source::FORMAT_JSONL) {
      source.set_media_root(".");
    }
    if (source.format() == v1::Source::FORMAT_MOCK) {
      DefaultMock(keys, key, &source);
    }
    if (source.format() == v1::Source::FORMAT_PARQUET &&
        !keys.Has(ChildKey(key, "shuffle_groups"))) {
      source.set_shuffle_groups(16);
    }
    if (!keys.Has(ChildKey(key, "index"))) {
      source.set_index(absl::StrCat(".ballast/", source.name(), ".index"));
    }
  }
}

void DefaultOrder(const KeyReport& keys, v1::Order* order) {
  if (!keys.Has("order.seed")) order->set_seed(1234);
  if (!keys.Has("order.shuffle")) order->set_shuffle(true);
  for (int i = 0; i < order->skips_size(); ++i) {
    if (keys.Has(ChildKey(ItemKey("order.skips", i), "steps"))) continue;
    order->mutable_skips(i)->set_steps(1);
  }
}

void DefaultModel(const KeyReport& keys, v1::Model* model) {
  if (!keys.Has("model.profile")) model->set_profile("qwen2_5_vl");
  if (!keys.Has("model.tokenizer")) model->set_tokenizer("bytes");
  if (!keys.Has("model.chat_template")) {
    model->set_chat_template(FindFamilyProfile(model->profile()) != nullptr
                                 ? model->profile()
                                 : "chatml");
  }
  if (!keys.Has("model.on_invalid_utf8")) {
    model->set_on_invalid_utf8(v1::Model::ON_INVALID_UTF8_ERROR);
  }
  if (model->has_custom_template() &&
      !keys.Has("model.custom_template.assistant.supervised")) {
    model->mutable_custom_template()->mutable_assistant()->set_supervised(true);
  }
  ApplyModelProfile(model).IgnoreError();
  if (!keys.Has("model.resample")) {
    model->set_resample(v1::Model::RESAMPLE_EXACT);
  }
  if (!keys.Has("model.decode")) model->set_decode(v1::Model::DECODE_HOST);
  if (!keys.Has("model.device_share")) model->set_device_share(1);
}

void DefaultBatch(const KeyReport& keys, v1::Batch* batch) {
  if (!keys.Has("batch.max_tokens")) batch->set_max_tokens(4096);
  if (!keys.Has("batch.on_too_long")) {
    batch->set_on_too_long(v1::Batch::ON_TOO_LONG_ERROR);
  }
}

// Call after DefaultServe: the default server's address is its first one.
void DefaultTopology(const KeyReport& keys, const v1::Serve& serve,
                     v1::Topology* topology) {
  for (auto& [name, module] : *topology->mutable_modules()) {
    if (module.dp() == 0) module.set_dp(1);
    if (module.tp() == 0) module.set_tp(1);
    if (module.pp() == 0) module.set_pp(1);
    if (module.cp() == 0) module.set_cp(1);
  }
  if (!keys.Has("topology.colocated")) topology->set_colocated(true);
  if (keys.Has("topology.servers")) return;
  v1::Topology::Server& server = *topology->add_servers();
  if (serve.listen_size() > 0) server.set_address(serve.listen(0));
  for (const auto& [name, module] : topology->modules()) {
    std::vector<uint32_t> ranks(module.dp());
    std::iota(ranks.begin(), ranks.end(), 0u);
    (*server.mutable_ranks())[name] = FormatRankList(ranks);
  }
}

// Encoders cost 1 for each unit, and the language model nothing. `key` is the
// section's key. If `model` is set, ResolveModelCosts fills in the rest.
void DefaultCost(const KeyReport& keys, absl::string_view key,
                 v1::Balance::Cost* cost) {
  for (const ModuleKind& kind : kModuleKinds) {
    if (IsLanguage(kind.module)) {
      MutableCoefficients(cost, kind.module);
    } else if (cost->model().empty() &&
               !keys.Has(absl::StrCat(key, ".", kind.name, ".linear"))) {
      MutableCoefficients(cost, kind.module)->set_linear(1);
    }
  }
}

// Call after DefaultTopology.
void DefaultBalance(const KeyReport& keys, bool colocated,
                    v1::Packing::Mode packing, v1::Balance* balance) {
  if (!keys.Has("balance.delivery")) {
    balance->set_delivery(v1::DELIVERY_EXCHANGE);
  }
  if (!keys.Has("balance.algorithm")) {
    balance->set_algorithm(v1::Balance::ALGORITHM_REFINED);
  }
  if (!keys.Has("balance.scope")) {
    balance->set_scope(v1::Balance::SCOPE_MICRO_BATCH);
  }
  if (!keys.Has("balance.window")) balance->set_window(1);
  if (!keys.Has("balance.align_images")) balance->set_align_images(true);
  if (!keys.Has("balance.order")) {
    balance->set_order(v1::Balance::ORDER_NATURAL);
  }
  if (!keys.Has("balance.placement")) {
    balance->set_placement(v1::Balance::PLACEMENT_PAIRED);
  }
  if (!keys.Has("balance.objective")) {
    const bool phases = !colocated && packing != v1::Packing::MODE_SCHEDULED &&
                        balance->algorithm() == v1::Balance::ALGORITHM_REFINED;
    balance->set_objective(phases ? v1::Balance::OBJECTIVE_PHASES
                                  : v1::Balance::OBJECTIVE_SUM);
  }
  DefaultCost(keys, "balance.cost", balance->mutable_cost());
  for (int i = 0; i < balance->cost_changes_size(); ++i) {
    DefaultCost(keys, ChildKey(ItemKey("balance.cost_changes", i), "cost"),
                balance->mutable_cost_changes(i)->mutable_cost());
  }
}

void DefaultPacking(const KeyReport& keys, v1::Packing* packing) {
  if (!keys.Has("packing.mode")) packing->set_mode(v1::Packing::MODE_SHARD);
  if (!keys.Has("packing.max_tokens_per_rank")) {
    packing->set_max_tokens_per_rank(8192);
  }
  if (!keys.Has("packing.virtual_pipeline_group")) {
    packing->set_virtual_pipeline_group(1);
  }
}

void DefaultServe(const KeyReport& keys, v1::Serve* serve) {
  if (!keys.Has("serve.listen")) serve->add_listen("127.0.0.1:7070");
  if (!keys.Has("serve.row_group_memory")) {
    serve->set_row_group_memory(uint64_t{2} << 30);
  }
  if (!keys.Has("serve.memory")) serve->set_memory(uint64_t{8} << 30);
  if (!keys.Has("serve.prefetch_steps")) serve->set_prefetch_steps(4);
  if (!keys.Has("serve.on_bad_sample")) {
    serve->set_on_bad_sample(v1::Serve::ON_BAD_SAMPLE_PLACEHOLDER);
  }
  if (!keys.Has("serve.max_bad_samples")) serve->set_max_bad_samples(100);
  if (!keys.Has("serve.read_attempts")) serve->set_read_attempts(3);
  if (!keys.Has("serve.read_timeout")) serve->set_read_timeout(30);
  if (!keys.Has("serve.stall_after")) serve->set_stall_after(10);
  if (!keys.Has("serve.log_level")) {
    serve->set_log_level(v1::Serve::LOG_LEVEL_INFO);
  }
  if (!keys.Has("serve.max_streams")) serve->set_max_streams(65536);
  if (!keys.Has("serve.max_streams_per_client")) {
    serve->set_max_streams_per_client(4096);
  }
  if (!keys.Has("serve.arena")) serve->set_arena("auto");
}

void DefaultStorage(const KeyReport& keys, v1::Storage* storage) {
  if (!keys.Has("storage.s3.region")) {
    storage->mutable_s3()->set_region("us-east-1");
  }
  if (!keys.Has("storage.s3.credentials")) {
    storage->mutable_s3()->set_credentials("environment");
  }
  if (!keys.Has("storage.gcs.credentials")) {
    storage->mutable_gcs()->set_credentials("environment");
  }
  if (!keys.Has("storage.azure.credentials")) {
    storage->mutable_azure()->set_credentials("environment");
  }
  if (!keys.Has("storage.memory")) storage->set_memory(uint64_t{256} << 20);
  if (!keys.Has("storage.connections")) storage->set_connections(32);
  if (!keys.Has("storage.ahead_steps")) {
    storage->set_ahead_steps(storage->has_cache() ? 64 : 8);
  }
}

}  // namespace

void ApplyDefaults(const KeyReport& keys, v1::Config* config) {
  DefaultSources(keys, config);
  DefaultOrder(keys, config->mutable_order());
  DefaultModel(keys, config->mutable_model());
  DefaultBatch(keys, config->mutable_batch());
  DefaultServe(keys, config->mutable_serve());
  DefaultTopology(keys, config->serve(), config->mutable_topology());
  DefaultBalance(keys, config->topology().colocated(), config->packing().mode(),
                 config->mutable_balance());
  DefaultPacking(keys, config->mutable_packing());
  DefaultStorage(keys, config->mutable_storage());
}

void ResolvePaths(absl::string_view directory, v1::Config* config) {
  const auto resolve = [directory](std::string* path) {
    if (!path->empty()) *path = ResolvePath(directory, *path);
  };
  for (v1::Source& source : *config->mutable_sources()) {
    resolve(source.mutable_media_root());
    resolve(source.mutable_index());
    if (source.has_lengths()) resolve(source.mutable_lengths()->mutable_path());
  }
  if (config->model().tokenizer() != "bytes") {
    resolve(config->mutable_model()->mutable_tokenizer());
  }
  if (config->serve().arena() != "auto" && config->serve().arena() != "off") {
    resolve(config->mutable_serve()->mutable_arena());
  }
  v1::Balance& balance = *config->mutable_balance();
  resolve(balance.mutable_cost()->mutable_model());
  for (v1::Balance::CostChange& change : *balance.mutable_cost_changes()) {
    resolve(change.mutable_cost()->mutable_model());
  }
  v1::Storage& storage = *config->mutable_storage();
  resolve(storage.mutable_s3()->mutable_ca());
  for (std::string* credentials :
       {storage.mutable_s3()->mutable_credentials(),
        storage.mutable_gcs()->mutable_credentials(),
        storage.mutable_azure()->mutable_credentials()}) {
    if (*credentials != "environment" && *credentials != "instance" &&
        *credentials != "anonymous") {
      resolve(credentials);
    }
  }
  if (config->storage().has_cache()) {
    resolve(config->mutable_storage()->mutable_cache()->mutable_dir());
  }
  if (!config->has_security()) return;
  v1::Security& security = *config->mutable_security();
  resolve(security.mutable_tokens_file());
  if (security.has_tls()) {
    resolve(security.mutable_tls()->mutable_cert());
    resolve(security.mutable_tls()->mutable_key());
    resolve(security.mutable_tls()->mutable_client_ca());
    resolve(security.mutable_tls()->mutable_ca());
  }
}

}  // namespace ballast
