#ifndef BALLAST_TESTS_FAKES_JOB_CONFIG_H_
#define BALLAST_TESTS_FAKES_JOB_CONFIG_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "tests/fakes/fake_source_index.h"

namespace ballast {

// A complete configuration, as LoadConfig would return it, of one source named
// `docs`: bytes tokenizer, profile qwen2_5_vl with 3136..200704 pixels, vision
// cost 1 per patch. A module whose `vision_dp` or `language_dp` is 0 is left
// out.
v1::Config JobConfig(uint32_t vision_dp, uint32_t language_dp,
                     uint32_t global_batch, uint32_t micro_batch,
                     v1::Delivery delivery = v1::DELIVERY_EXCHANGE);

// Kinds of loads of a vision-language job, for balance tests and reports.
inline constexpr absl::string_view kDrawnLoads[] = {"receipts", "lognormal",
                                                    "bimodal", "mixed"};

// Draws `n` samples; the same on every machine.
//   receipts   one tall scan, 100 to 500 tokens of text
//   lognormal  one photo of lognormal size, lognormal text
//   bimodal    a thumbnail (7 of 10) or a page, 50 to 400 tokens of text
//   mixed      a third text alone, a third one image, a third 2 to 6 images
std::vector<FakeSourceIndex::Sample> DrawLoad(absl::string_view kind,
                                              uint32_t n, uint32_t seed = 0);

// JobConfig of `ranks` ranks of both modules, `ranks_a_server` to a server,
// `each` samples a rank in one micro-batch a step, images of up to 4,096
// tokens, and the costs of Qwen2.5-VL-7B (docs/schedule.md).
v1::Config DrawnLoadConfig(uint32_t ranks, uint32_t each,
                           uint32_t ranks_a_server = 8);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_JOB_CONFIG_H_
