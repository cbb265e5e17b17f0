#include "server/text/family_template.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ballast {
namespace {

struct Named {
  absl::string_view family;
  FamilyTemplate chat;
};

FamilyTemplate Gemma3() {
  FamilyTemplate chat;
  chat.begin = "<bos>";
  chat.user = {"<start_of_turn>user\n", "<end_of_turn>", "\n"};
  chat.assistant = {"<start_of_turn>model\n", "<end_of_turn>", "\n"};
  chat.trim = true;
  chat.system_in_user = true;
  chat.alternates = true;
  return chat;
}

// The images have had line feeds around them in the files of the release.
FamilyTemplate Gemma4() {
  FamilyTemplate chat;
  chat.begin = "<bos>";
  chat.system = {"<|turn>system\n", "<turn|>", "\n"};
  chat.user = {"<|turn>user\n", "<turn|>", "\n"};
  chat.assistant = {"<|turn>model\n", "<turn|>", "\n"};
  chat.trim = true;
  chat.system_first = true;
  chat.thought_begin = "<|channel>";
  chat.thought_end = "<channel|>";
  chat.answers_stand_apart = true;
  return chat;
}

// No turn has an end: the next one begins.
FamilyTemplate Glm41() {
  FamilyTemplate chat;
  chat.begin = "[gMASK]<sop>";
  chat.system = {"<|system|>\n", "", ""};
  chat.user = {"<|user|>\n", "", ""};
  chat.assistant = {"<|assistant|>\n", "", ""};
  chat.answer_stop = "<|user|>";
  chat.system_first = true;
  chat.answers_have_no_images = true;
  return chat;
}

FamilyTemplate Glm46() {
  FamilyTemplate chat = Glm41();
  chat.assistant.prefix = "<|assistant|>\n<think></think>";
  chat.answer_before = "\n";
  chat.trim_answer = true;
  chat.thought_end = "</think>";
  return chat;
}

FamilyTemplate Ernie() {
  FamilyTemplate chat;
  chat.begin = "<|begin_of_sentence|>";
  chat.system = {"", "", "\n"};
  chat.user = {"User: ", "", ""};
  chat.assistant = {"\nAssistant: ", "<|end_of_sentence|>", ""};
  chat.image_before = "Picture {number}:";
  chat.system_first = true;
  chat.thought_end = "</think>";
  chat.answers_have_no_images = true;
  chat.alternates = true;
  return chat;
}

// A turn is named behind its text.
FamilyTemplate HunyuanVl() {
  FamilyTemplate chat;
  chat.begin = "<｜hy_begin▁of▁sentence｜>";
  chat.system = {"", "", "<｜hy_place▁holder▁no▁3｜>"};
  chat.user = {"", "", "<｜hy_User｜>"};
  chat.assistant = {"", "<｜hy_Assistant｜>", ""};
  chat.system_first = true;
  chat.answers_have_no_images = true;
  chat.alternates = true;
  chat.one_answer = true;
  return chat;
}

FamilyTemplate Idefics(absl::string_view begin) {
  FamilyTemplate chat;
  chat.begin = begin;
  chat.system = {"System:", "<end_of_utterance>", "\n"};
  chat.user = {"User:", "<end_of_utterance>", "\n"};
  chat.assistant = {"Assistant:", "<end_of_utterance>", "\n"};
  chat.text_first = " ";
  return chat;
}

FamilyTemplate InternVl() {
  FamilyTemplate chat;
  chat.system = {"<|im_start|>system\n", "<|im_end|>", "\n"};
  chat.user = {"<|im_start|>user\n", "<|im_end|>", "\n"};
  chat.assistant = {"<|im_start|>assistant\n", "<|im_end|>", "\n"};
  chat.image_after = "\n";
  return chat;
}

FamilyTemplate Llama4() {
  FamilyTemplate chat;
  chat.begin = "<|begin_of_text|>";
  chat.system = {"<|header_start|>system<|header_end|>\n\n", "<|eot|>", ""};
  chat.user = {"<|header_start|>user<|header_end|>\n\n", "<|eot|>", ""};
  chat.assistant = {"<|header_start|>assistant<|header_end|>\n\n", "<|eot|>",
                    ""};
  chat.trim_system = true;
  return chat;
}

// Vicuna's. The tokenizer, not the template, writes <s>.
FamilyTemplate Llava() {
  FamilyTemplate chat;
  chat.begin = "<s>";
  chat.user = {"USER: ", "", ""};
  chat.assistant = {"ASSISTANT: ", "", ""};
  chat.image_after = "\n";
  chat.text_after = " ";
  chat.images_first = true;
  return chat;
}

FamilyTemplate LlavaOneVision() {
  FamilyTemplate chat;
  chat.system = {"<|im_start|>system ", "<|im_end|>", ""};
  chat.user = {"<|im_start|>user ", "<|im_end|>", ""};
  chat.assistant = {"<|im_start|>assistant ", "<|im_end|>", ""};
  chat.text_before = "\n";
  chat.images_first = true;
  return chat;
}

// LLaVA-NeXT's qwen_1_5 and its preprocess_multimodal.
FamilyTemplate LlavaVideo() {
  FamilyTemplate chat = InternVl();
  chat.image_after = "";
  chat.only_image_first = true;
  return chat;
}

FamilyTemplate Kimi() {
  FamilyTemplate chat;
  chat.system = {"<|im_system|>system<|im_middle|>", "<|im_end|>", ""};
  chat.user = {"<|im_user|>user<|im_middle|>", "<|im_end|>", ""};
  chat.assistant = {"<|im_assistant|>assistant<|im_middle|><think></think>",
                    "<|im_end|>", ""};
  chat.image_after = "\n";
  chat.thought_end = "</think>";
  return chat;
}

FamilyTemplate MiniCpm() {
  FamilyTemplate chat;
  chat.system = {"<|im_start|>system\n", "<|im_end|>", "\n"};
  chat.user = {"<|im_start|>user\n", "<|im_end|>", "\n"};
  chat.assistant = {"<|im_start|>assistant\n", "<|im_end|>", "\n"};
  chat.part_seam = "\n";
  chat.answer_first = "<think>\n\n</think>\n\n";
  chat.trim_message = true;
  chat.needs_question = true;
  chat.thought_end = "</think>";
  return chat;
}

FamilyTemplate Pixtral() {
  FamilyTemplate chat;
  chat.begin = "<s>";
  chat.user = {"[INST]", "[/INST]", ""};
  chat.assistant = {"", "</s>", ""};
  chat.allows_system = false;
  chat.alternates = true;
  return chat;
}

const std::vector<Named>& Templates() {
  static const auto& templates = *new std::vector<Named>{
      {"ernie4_5_vl", Ernie()},
      {"gemma3", Gemma3()},
      {"gemma3_pan_and_scan", Gemma3()},
      {"gemma4", Gemma4()},
      {"glm46v", Glm46()},
      {"glm4v", Glm41()},
      {"hunyuan_vl", HunyuanVl()},
      {"idefics3", Idefics("<|begin_of_text|>")},
      {"internvl3", InternVl()},
      {"kimi_k25", Kimi()},
      {"llama4", Llama4()},
      {"llava1_5", Llava()},
      {"llava1_5_pad", Llava()},
      {"llava_next", Llava()},
      {"llava_onevision", LlavaOneVision()},
      {"llava_video", LlavaVideo()},
      {"minicpmv4_6", MiniCpm()},
      {"pixtral", Pixtral()},
      {"smolvlm", Idefics("<|im_start|>")},
  };
  return templates;
}

}  // namespace

absl::StatusOr<FamilyTemplate> FindFamilyTemplate(absl::string_view family) {
  for (const Named& named : Templates()) {
    if (named.family == family) return named.chat;
  }
  return absl::NotFoundError(
      absl::StrCat("the chat template of the family ", family,
                   " is not covered; wanted one of ",
                   absl::StrJoin(FamilyTemplateNames(), ", ")));
}

std::vector<std::string> FamilyTemplateNames() {
  std::vector<std::string> names;
  for (const Named& named : Templates()) {
    names.emplace_back(named.family);
  }
  return names;
}

}  // namespace ballast
