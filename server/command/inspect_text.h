#ifndef BALLAST_SERVER_COMMAND_INSPECT_TEXT_H_
#define BALLAST_SERVER_COMMAND_INSPECT_TEXT_H_

#include <istream>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/command_line.h"
#include "proto/config.pb.h"
#include "server/corpus/index/source_index.h"
#include "server/corpus/journal.h"
#include "server/job/index_sources.h"
#include "server/text/tokenizer.h"

namespace ballast {

// Adds `inspect text`, which prints the token ids of texts.
void AddInspectText(CommandLine* line, Command* inspect);

// Runs the command on any streams. Each input line {"text": …} gives an output
// line {"ids": […]}. Errors name the line: INVALID_ARGUMENT, the tokenizer's.
absl::Status InspectText(const Tokenizer& tokenizer, std::istream& in,
                         std::ostream& out);

// Adds `inspect conversation`, which prints the token ids of conversations with
// images, as the processor of a model family makes them.
void AddInspectConversation(CommandLine* line, Command* inspect);

struct ConversationOptions {
  std::string family;         // a model of models/, or ""
  std::string chat_template;  // a file, or ""
  std::string tokenizer;
  std::string reasoning = "template";  // as TemplateRenderer::Options
  bool with_text = false;
};

// Runs the command: for each line of `in`, a conversation (ParseConversation,
// or with a template what TemplateRenderer::Request has) with `images`,
// [[height, width], ...], writes {"ids", "labels"}, "left_out" where a template
// leaves something out (RenderedConversation), and `with_text` "text" and
// "supervised". Errors: INVALID_ARGUMENT (neither model nor template; an option
// that needs a template); as TransformJsonLines (inspect_sample.h), BuildText
// and TemplateRenderer::Create.
absl::Status InspectConversations(const ConversationOptions& options,
                                  std::istream& in, std::ostream& out);

// Adds `inspect positions`, which prints the position ids of token ids.
void AddInspectPositions(CommandLine* line, Command* inspect);

// Runs the command on any streams. Each input line {"input_ids": […],
// "image_grid_thw": [[t,h,w], …]} gives an output line {"position_ids": [[…],
// …]} with one list for each axis of `model`. Errors name the line:
// INVALID_ARGUMENT.
absl::Status InspectPositions(const v1::Model& model, std::istream& in,
                              std::ostream& out);

// Indented lines that say how many images JPEG engines may decode, how many of
// them have been checked, and why the others stay with the server:
//   JPEG engines may decode 950 of 1000 images: 945 clean, 5 unsound
//   the server decodes: 30 not baseline of 8 bits, 20 not a JPEG
// Pure.
std::string MarksText(const ImageMarkCounts& marks);

// The lines that `index --check` prints of a source. Pure.
std::string CheckText(const SourceCheck& check, const Shard& shard);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_TEXT_H_
