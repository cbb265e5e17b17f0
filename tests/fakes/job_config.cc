#include "tests/fakes/job_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "absl/strings/str_cat.h"
#include "server/model/model_profile.h"

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

namespace {

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}

  uint32_t Between(uint32_t least, uint32_t most) {
    return least + random_() % (most - least + 1);
  }
  // A lognormal number of that median, within the limits.
  uint32_t Lognormal(double median, double sigma, uint32_t least,
                     uint32_t most) {
    // A sum of uniform numbers is close to normal, without exp or cos of it.
    double normal = -6;
    for (int i = 0; i < 12; ++i) normal += (random_() + 0.5) / 4294967296.0;
    const double drawn = median * std::exp(sigma * normal);
    return std::clamp<uint32_t>(static_cast<uint32_t>(drawn), least, most);
  }
  ImageSize Photo(double median_pixels) {
    const uint32_t pixels = Lognormal(median_pixels, 0.8, 100 * 100, 3'000'000);
    const uint32_t height =
        static_cast<uint32_t>(std::sqrt(pixels * (Between(60, 160) / 100.0)));
    return {height, std::max(28u, pixels / height)};
  }

 private:
  std::mt19937 random_;
};

}  // namespace

std::vector<FakeSourceIndex::Sample> DrawLoad(absl::string_view kind,
                                              uint32_t n, uint32_t seed) {
  Draw draw(seed);
  std::vector<FakeSourceIndex::Sample> samples(n);
  for (FakeSourceIndex::Sample& sample : samples) {
    if (kind == "receipts") {
      sample.text_tokens = draw.Between(100, 500);
      sample.images.push_back(
          {draw.Between(600, 1500), draw.Between(300, 500)});
    } else if (kind == "lognormal") {
      sample.text_tokens = draw.Lognormal(400, 0.8, 20, 4096);
      sample.images.push_back(draw.Photo(500'000));
    } else if (kind == "bimodal") {
      sample.text_tokens = draw.Between(50, 400);
      const bool page = draw.Between(0, 9) < 3;
      sample.images.push_back(
          page ? ImageSize{draw.Between(1100, 1400), draw.Between(800, 1000)}
               : ImageSize{draw.Between(200, 260), draw.Between(200, 260)});
    } else {
      const uint32_t third = draw.Between(0, 2);
      sample.text_tokens = third == 0 ? draw.Lognormal(800, 0.7, 50, 4096)
                                      : draw.Lognormal(200, 0.7, 20, 2048);
      const uint32_t images = third < 2 ? third : draw.Between(2, 6);
      for (uint32_t k = 0; k < images; ++k) {
        sample.images.push_back(draw.Photo(300'000));
      }
    }
    sample.label_tokens = sample.text_tokens / 2;
  }
  return samples;
}

v1::Config DrawnLoadConfig(uint32_t ranks, uint32_t each,
                           uint32_t ranks_a_server) {
  v1::Config config = JobConfig(ranks, ranks, each * ranks, each * ranks);
  config.mutable_model()->set_max_pixels(4096 * 28 * 28);
  v1::Topology& topology = *config.mutable_topology();
  topology.clear_servers();
  for (uint32_t first = 0; first < ranks; first += ranks_a_server) {
    v1::Topology::Server* server = topology.add_servers();
    server->set_address(absl::StrCat("127.0.0.1:", first + 1));
    for (const char* module : {"vision", "language"}) {
      (*server->mutable_ranks())[module] =
          absl::StrCat(first, "-", std::min(first + ranks_a_server, ranks) - 1);
    }
  }
  v1::Balance::Cost& cost = *config.mutable_balance()->mutable_cost();
  cost.mutable_vision()->set_linear(3.883);
  cost.mutable_vision()->set_quadratic(6.144e-5);
  cost.mutable_language()->set_linear(42.42);
  cost.mutable_language()->set_quadratic(6.021e-4);
  return config;
}

}  // namespace ballast
