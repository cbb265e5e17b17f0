#include "server/job/template_comparison.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/data/jsonl/pair_json.h"
#include "server/model/profiles.h"
#include "server/sample/data_fault.h"
#include "server/text/template/template_renderer.h"

namespace ballast {
namespace {

// The text from `at` on, for a message.
std::string Shown(absl::string_view text, size_t at) {
  constexpr size_t kShown = 60;
  if (at >= text.size()) return "its end";
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(at, kShown)),
                      "\"");
}

// Whether the template is meant to differ from the checkpoint's: it is the
// authors' training code's, and model.rules has transformers' apart.
bool IsOfAuthors(absl::string_view chat_template) {
  const v1::ModelProfile* profile = FindProfile(chat_template);
  return profile != nullptr && profile->has_transformers() &&
         profile->chat().SerializeAsString() !=
             profile->transformers().chat().SerializeAsString();
}

}  // namespace

std::string FirstDifference(absl::string_view own, absl::string_view built_in) {
  if (own == built_in) return "";
  const size_t at =
      std::mismatch(own.begin(), own.end(), built_in.begin(), built_in.end())
          .first -
      own.begin();
  return absl::StrCat("at byte ", at, " the checkpoint's has ", Shown(own, at),
                      ", the built-in ", Shown(built_in, at));
}

std::unique_ptr<TemplateComparison> TemplateComparison::Create(
    const ModelText* built_in, const Tokenizer* tokenizer) {
  const v1::Model& model = built_in->model();
  if (IsCheckpointTemplate(model.chat_template()) ||
      model.tokenizer() == "bytes" || IsOfAuthors(model.chat_template())) {
    return nullptr;
  }
  const auto source = ReadJinjaTemplate(model.tokenizer());
  if (!source.ok()) return nullptr;
  // A date that the built-in template does not write is a difference.
  auto renderer = TemplateRenderer::Create(
      *source, {.system_prompt = model.system_prompt(), .date = "now"});
  if (!renderer.ok()) return nullptr;
  auto own = ModelText::Create(model, tokenizer, *std::move(renderer));
  if (!own.ok()) return nullptr;
  return absl::WrapUnique(new TemplateComparison(built_in, *std::move(own)));
}

void TemplateComparison::Look(const RawSample& sample, size_t images) {
  const bool is_pair = sample.text_format == RawSample::TextFormat::kPair;
  if ((sample.text_format != RawSample::TextFormat::kConversation &&
       !is_pair) ||
      sample.facts.count(MediumKind::kVideo) > 0 ||
      looked_at_.load(std::memory_order_relaxed) >= kMaxCount ||
      looked_at_.fetch_add(1) >= kMaxCount) {
    return;
  }
  const std::string text =
      is_pair ? GetPairTexts(sample.text).chosen : sample.text;
  const absl::StatusOr<std::string> built_in =
      built_in_.WholeText(text, images);
  if (!built_in.ok()) return;
  const absl::StatusOr<std::string> own = own_->WholeText(text, images);
  // What a process or a machine lacks says nothing of the template.
  if (!own.ok() && !IsDataFault(own.status())) return;
  std::string difference = own.ok() ? FirstDifference(*own, *built_in)
                                    : std::string(own.status().message());
  if (difference.empty()) return;
  MutexLock lock(&mutex_);
  if (!difference_.empty() && name_ <= sample.name) return;
  name_ = sample.name;
  difference_ = std::move(difference);
}

std::string TemplateComparison::TakeDifference() {
  looked_at_ = 0;
  MutexLock lock(&mutex_);
  if (difference_.empty()) return "";
  const v1::Model& model = built_in_.model();
  return absl::StrCat(
      "model.chat_template: ", model.chat_template(), " writes ",
      std::exchange(name_, ""), " otherwise than the template next to ",
      model.tokenizer(), ": ", std::exchange(difference_, ""),
      "; name chat_template: checkpoint for the checkpoint's, or keep it if "
      "that is meant");
}

}  // namespace ballast
