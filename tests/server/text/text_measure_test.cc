#include "server/text/text_measure.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "server/config/model_profile.h"
#include "server/text/tokenizer.h"

namespace ballast {
namespace {

TEST(TextContentKeyTest, NamesWhatLengthsDependOn) {
  const std::unique_ptr<Tokenizer> tokenizer = *MakeTokenizer("bytes");
  v1::Model model;
  model.set_profile("qwen2_5_vl");
  ASSERT_TRUE(ApplyModelProfile(&model).ok());
  v1::Config config;
  *config.mutable_model() = model;
  config.mutable_batch()->set_max_tokens(100);
  const std::string key = TextContentKey(config, *tokenizer);
  EXPECT_EQ(TextContentKey(config, *tokenizer), key);
  v1::Config changed = config;
  changed.mutable_batch()->set_max_tokens(101);
  EXPECT_NE(TextContentKey(changed, *tokenizer), key);
  changed = config;
  changed.mutable_batch()->set_on_too_long(v1::Batch::ON_TOO_LONG_SKIP);
  EXPECT_NE(TextContentKey(changed, *tokenizer), key);
  changed = config;
  changed.mutable_model()->set_max_pixels(model.max_pixels() + 1);
  EXPECT_NE(TextContentKey(changed, *tokenizer), key);
  changed = config;
  changed.mutable_model()->set_exif_orientation(true);
  EXPECT_NE(TextContentKey(changed, *tokenizer), key);
  changed = config;
  changed.mutable_model()->set_chat_template("llama3");
  EXPECT_NE(TextContentKey(changed, *tokenizer), key);
  changed = config;
  changed.mutable_model()->mutable_custom_template()->mutable_user()->set_end(
      "x");
  EXPECT_NE(TextContentKey(changed, *tokenizer), key);
  changed = config;
  changed.mutable_model()->set_system_prompt("x\ny");
  EXPECT_NE(TextContentKey(changed, *tokenizer), key);
  changed = config;
  changed.mutable_model()->set_on_invalid_utf8(
      v1::Model::ON_INVALID_UTF8_REPLACE);
  EXPECT_NE(TextContentKey(changed, *tokenizer), key);
  changed = config;
  changed.mutable_model()->mutable_token_ids()->set_im_end(5);
  EXPECT_NE(TextContentKey(changed, *tokenizer), key);
  // How a job is run changes no length, nor does how images are resized.
  changed = config;
  changed.mutable_model()->set_resample(v1::Model::RESAMPLE_FAST);
  changed.mutable_batch()->set_global(64);
  changed.mutable_order()->set_seed(5);
  EXPECT_EQ(TextContentKey(changed, *tokenizer), key);
}

}  // namespace
}  // namespace ballast
