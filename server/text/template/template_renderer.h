#ifndef BALLAST_SERVER_TEXT_TEMPLATE_TEMPLATE_RENDERER_H_
#define BALLAST_SERVER_TEXT_TEMPLATE_TEMPLATE_RENDERER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/helper_pool.h"
#include "common/helper_process.h"
#include "common/mutex.h"

namespace ballast {

// A checkpoint's chat template, in Jinja, and its tokenizer's names of special
// tokens, which templates use as variables.
struct JinjaTemplate {
  std::string text;
  // For conversations with tools, where the checkpoint has a second template of
  // this name; "": `text`.
  std::string tool_use = "";
  std::string variables = "{}";  // an object of JSON: {"bos_token": "<s>", …}

  // Hexadecimal; equal for templates that render alike with one jinja2 and one
  // version of renderer.py's rules.
  std::string hash() const;
};

// The template next to the tokenizer's file. Errors: NOT_FOUND (no file there
// has one). Blocks on the disk.
absl::StatusOr<JinjaTemplate> ReadJinjaTemplate(const std::string& tokenizer);

// The special tokens' names, as ReadJinjaTemplate takes them from the files
// next to the tokenizer.
std::string ReadTemplateVariables(const std::string& tokenizer);

// Whether model.chat_template has the checkpoint's own template rendered:
// `checkpoint`, or the name that OpenModelTokenizer gives it.
bool IsCheckpointTemplate(absl::string_view chat_template);

// The value of model.chat_template by which servers compare what they render:
// checkpoint@HASH+jinja2-VERSION.
std::string CheckpointTemplateName(const JinjaTemplate& source,
                                   absl::string_view jinja_version);

// A conversation as its template writes it.
struct RenderedConversation {
  // Bytes [begin, end) of `text`.
  struct Span {
    size_t begin = 0;
    size_t end = 0;
  };
  // A message of the assistant.
  struct Answer {
    uint32_t turn = 0;  // its number in the sample, from 1
    float weight = 1;   // how much it is learnt: from 0, not at all, to 1
    // It says its thoughts itself: they are not the template's empty ones.
    bool has_own_thought = false;
  };
  std::string text;
  // What `{% generation %}` marks, in order; with `by_prefixes` instead what
  // each answer adds to the messages before it.
  std::vector<Span> spans;
  std::vector<Answer> answers;
  // What the template leaves out of every such conversation, such as "turn 2:
  // `tool_calls`"; "": nothing.
  std::string left_out;
};

// Renders conversations with jinja2 in processes of Python (renderer.py), as
// transformers' apply_chat_template does. Threads that call at the same time
// share a request. A conversation on which a process ends costs the others a
// second try. Thread-safe.
class TemplateRenderer {
 public:
  struct Options {
    // Of a conversation that does not begin with a system turn; "": none.
    std::string system_prompt = {};
    // What strftime_now writes: a date as in ISO 8601; "now": the clock's; "":
    // the template may not.
    std::string date = {};
    // model.reasoning: "template", "keep", "last" or "drop".
    std::string reasoning = "template";
    // The most processor time of a rendering; a conversation of 2 MB has twice
    // that.
    double seconds = 20;
    // 0: three for four cores.
    size_t processes = 0;
    absl::Duration patience = absl::Seconds(60);
  };

  // Starts a process: the first python3 of PATH that has jinja2. Errors:
  // FAILED_PRECONDITION (none has), INVALID_ARGUMENT (the template is not one,
  // with jinja2's reason and line; it cannot keep reasoning as Options want),
  // UNAVAILABLE (no process can be started).
  static absl::StatusOr<std::unique_ptr<TemplateRenderer>> Create(
      const JinjaTemplate& source, const Options& options);

  struct Request {
    // An object with `messages` or `conversations`, and perhaps `tools`,
    // `documents` and `system` (docs/text.md).
    absl::string_view json;
    // Marks `<image>` in texts are parts, and likewise `<video>`. With videos
    // alone both mark a video.
    bool has_images = false;
    bool by_prefixes = false;
    bool has_videos = false;
  };

  // Blocks. Errors: a data fault (what the template or the conversation is
  // refused for; over the limits of time, memory and length), UNAVAILABLE (a
  // process was killed or cannot be started).
  absl::StatusOr<RenderedConversation> Render(const Request& request) const;

  // The same of many at once.
  std::vector<absl::StatusOr<RenderedConversation>> RenderAll(
      absl::Span<const Request> requests) const;

  const std::string& jinja_version() const { return jinja_version_; }
  bool has_generation() const { return has_generation_; }

 private:
  struct Waiting;

  explicit TemplateRenderer(const Options& options);

  void MakePool();
  absl::Status Prepare(HelperProcess* helper) const;
  static absl::Status AskFor(HelperPool::Worker* worker,
                             absl::Span<HelperPool::Job* const> jobs);

  const Options options_;
  std::string python_;
  std::string setup_;  // the request kTemplate
  mutable std::string jinja_version_;
  mutable bool has_generation_ = false;

  mutable Mutex mutex_;  // of the two above
  std::unique_ptr<HelperPool> pool_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_TEMPLATE_TEMPLATE_RENDERER_H_
