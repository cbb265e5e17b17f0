#ifndef BALLAST_SERVER_JOB_CONFIG_INDEX_KEY_H_
#define BALLAST_SERVER_JOB_CONFIG_INDEX_KEY_H_

#include "proto/config.pb.h"
#include "server/corpus/index/index_key.h"
#include "server/text/tokenizer.h"

namespace ballast {

// The key of everything that the indexes of a loaded `config` depend on.
// `tokenizer` is the one that its model names; the model's token ids agree with
// it (OpenModelTokenizer).
IndexKey IndexKeyOf(const v1::Config& config, const Tokenizer& tokenizer);

}  // namespace ballast

#endif  // BALLAST_SERVER_JOB_CONFIG_INDEX_KEY_H_
