#include "tests/fakes/job_config.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "server/config/model_profile.h"

namespace ballast {
namespace {

v1::Topology::Module ModuleOf(uint32_t dp) {
  v1::Topology::Module module;
  module.set_dp(dp);
  module.set_tp(1);
  module.set_pp(1);
  module.set_cp(1);
  return module;
}

}  // namespace

v1::Config JobConfig(uint32_t vision_dp, uint32_t language_dp,
                     uint32_t global_batch, uint32_t micro_batch,
                     v1::Delivery delivery) {
  v1::Config config;
  v1::Source* source = config.add_sources();
  source->set_name("docs");
  source->set_format(v1::Source::FORMAT_WEBDATASET);
  source->set_path("docs-*.tar");
  source->set_weight(1);
  config.mutable_order()->set_seed(1234);
  config.mutable_order()->set_shuffle(true);
  v1::Model& model = *config.mutable_model();
  model.set_profile("qwen2_5_vl");
  model.set_tokenizer("bytes");
  model.set_chat_template("chatml");
  model.set_min_pixels(3136);
  model.set_max_pixels(200704);
  if (!ApplyModelProfile(&model).ok()) std::abort();
  config.mutable_batch()->set_global(global_batch);
  config.mutable_batch()->set_micro(micro_batch);
  config.mutable_batch()->set_max_tokens(4096);
  config.mutable_batch()->set_on_too_long(v1::Batch::ON_TOO_LONG_ERROR);

  v1::Topology& topology = *config.mutable_topology();
  topology.set_colocated(true);
  v1::Topology::Server* server = topology.add_servers();
  server->set_address("127.0.0.1:0");
  const auto add = [&](const char* name, uint32_t dp) {
    if (dp == 0) return;
    (*topology.mutable_modules())[name] = ModuleOf(dp);
    (*server->mutable_ranks())[name] = absl::StrCat("0-", dp - 1);
  };
  add("vision", vision_dp);
  add("language", language_dp);

  v1::Balance& balance = *config.mutable_balance();
  balance.set_delivery(delivery);
  balance.set_algorithm(v1::Balance::ALGORITHM_REFINED);
  balance.set_scope(v1::Balance::SCOPE_MICRO_BATCH);
  balance.set_window(1);
  balance.set_align_images(true);
  balance.set_objective(v1::Balance::OBJECTIVE_SUM);
  balance.mutable_cost()->mutable_vision()->set_linear(1);
  balance.mutable_cost()->mutable_language();
  config.mutable_packing()->set_mode(v1::Packing::MODE_SHARD);
  config.mutable_packing()->set_max_tokens_per_rank(8192);
  v1::Serve& serve = *config.mutable_serve();
  serve.add_listen("127.0.0.1:0");
  serve.set_threads(2);
  serve.set_memory(uint64_t{256} << 20);
  serve.set_prefetch_steps(2);
  serve.set_on_bad_sample(v1::Serve::ON_BAD_SAMPLE_PLACEHOLDER);
  serve.set_max_bad_samples(100);
  serve.set_read_attempts(3);
  serve.set_read_timeout(30);
  serve.set_stall_after(10);
  serve.set_max_streams(65536);
  serve.set_max_streams_per_client(4096);
  return config;
}

}  // namespace ballast
