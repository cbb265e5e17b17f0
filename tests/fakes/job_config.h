#ifndef BALLAST_TESTS_FAKES_JOB_CONFIG_H_
#define BALLAST_TESTS_FAKES_JOB_CONFIG_H_

#include <cstdint>

#include "proto/config.pb.h"

namespace ballast {

// A complete configuration, as LoadConfig would return it, of one source named
// `docs`: bytes tokenizer, profile qwen2_5_vl with 3136..200704 pixels, vision
// cost 1 per patch. A module whose `vision_dp` or `language_dp` is 0 is left
// out.
v1::Config JobConfig(uint32_t vision_dp, uint32_t language_dp,
                     uint32_t global_batch, uint32_t micro_batch,
                     v1::Delivery delivery = v1::DELIVERY_EXCHANGE);

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_JOB_CONFIG_H_
