#include "server/text/template/template_renderer.h"

#include <xxhash.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/machine.h"
#include "common/python_helper.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/sample/data_fault.h"
#include "server/text/chat_writer.h"
#include "server/text/template/renderer_text.h"
#include "server/text/template/trials_text.h"

namespace ballast {
namespace {

constexpr char kCheckpoint[] = "checkpoint";
// tokenizer_config.json lists the added tokens, at most a few MB.
constexpr size_t kMaxFileBytes = size_t{16} << 20;
constexpr char kToolUse[] = "tool_use";
// Raised when renderer.py makes another text or other spans of the same
// conversation, or refuses others.
//   2: what the template leaves out is refused; texts where it writes parts
//      alone are parts; an empty thought for a message with one is the
//      template's
//   3: what it writes only elsewhere is left out, too (trials.py); an end of a
//      turn that comes with the next turn is learnt, nothing before a first
//      turn of the assistant is
constexpr int kRendererRules = 3;

std::string ReadBeside(const std::string& tokenizer, const char* name) {
  const std::string folder = tokenizer.substr(0, tokenizer.rfind('/') + 1);
  return ReadSmallFile(folder + name, kMaxFileBytes).value_or("");
}

}  // namespace

std::string JinjaTemplate::hash() const {
  // No JSON holds a zero byte.
  const std::string zero(1, '\0');
  const std::string whole =
      absl::StrCat(kRendererRules, zero, variables, zero, tool_use, zero, text);
  const XXH128_hash_t hash = XXH3_128bits(whole.data(), whole.size());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

absl::StatusOr<JinjaTemplate> ReadJinjaTemplate(const std::string& tokenizer) {
  JinjaTemplate read;
  const TemplateFiles files = {ReadBeside(tokenizer, "chat_template.jinja"),
                               ReadBeside(tokenizer, "chat_template.json"),
                               ReadBeside(tokenizer, "tokenizer_config.json")};
  read.text = OwnTemplate(files);
  read.tool_use =
      files.jinja.empty()
          ? OwnTemplate(files, kToolUse)
          : ReadBeside(tokenizer, "additional_chat_templates/tool_use.jinja");
  if (read.text.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "model.chat_template: found checkpoint, and no chat template next to ",
        tokenizer,
        "; wanted chat_template.jinja there, or the key chat_template of "
        "chat_template.json or tokenizer_config.json: copy it from the "
        "checkpoint, or name a template of docs/text.md"));
  }
  read.variables = ReadTemplateVariables(tokenizer);
  return read;
}

std::string ReadTemplateVariables(const std::string& tokenizer) {
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  // The first file that has a name is right, as in transformers.
  for (const char* file :
       {"tokenizer_config.json", "special_tokens_map.json"}) {
    const nlohmann::ordered_json read = nlohmann::ordered_json::parse(
        ReadBeside(tokenizer, file), /*cb=*/nullptr,
        /*allow_exceptions=*/false);
    if (!read.is_object()) continue;
    for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token",
                             "pad_token", "cls_token", "mask_token"}) {
      const auto found = read.find(name);
      if (found == read.end() || variables.contains(name)) continue;
      const nlohmann::ordered_json value =
          found->is_object() ? found->value("content", nlohmann::ordered_json())
                             : *found;
      if (value.is_string()) variables[name] = value;
    }
  }
  return variables.dump();
}

bool IsCheckpointTemplate(absl::string_view chat_template) {
  return chat_template == kCheckpoint ||
         absl::StartsWith(chat_template, absl::StrCat(kCheckpoint, "@"));
}

std::string CheckpointTemplateName(const JinjaTemplate& source,
                                   absl::string_view jinja_version) {
  return absl::StrCat(kCheckpoint, "@", source.hash(), "+jinja2-",
                      jinja_version);
}

namespace {

// The requests to the program that renders templates (renderer.py), and its
// answers, as frames of common/helper_program.h. A new process first says which
// Python and jinja2 it has, as JSON, in a kDone.
//
//   kTemplate  JSON: the template, and its inputs besides conversations
//              -> kDone and JSON {"generation": whether it has such spans}, or
//              kRefused and why
//   kRender    the number of conversations (uint32_t), a Head for each, their
//              JSON one after another -> kDone: their number again, then for
//              each an Outcome, its spans (SpanRecord), the assistant's
//              messages (Answer), and the text, or the reason, and what the
//              text leaves out
namespace template_helper {

enum RequestKind : uint32_t { kTemplate = 2, kRender };
enum AnswerKind : uint32_t { kDone, kRefused, kTooLong };

// Flags of a conversation.
constexpr uint32_t kHasImages = 1;
constexpr uint32_t kByPrefixes = 2;
constexpr uint32_t kHasVideos = 4;

struct Head {
  uint32_t flags;
  uint32_t bytes;
};

// Flags of a message of the assistant.
constexpr uint32_t kHasOwnThought = 1;

struct Outcome {
  uint32_t kind;  // AnswerKind
  uint32_t bytes;
  uint32_t spans;
  uint32_t answers;
  uint32_t left_out;  // bytes
};

struct Answer {
  uint32_t flags;
  uint32_t turn;  // number in the sample, from 1
  float weight;   // 0 to 1
};

struct SpanRecord {
  uint32_t begin;  // in bytes of the text
  uint32_t end;
};

// A process that takes more processor time for one rendering than
// Options::seconds, and a second for so many bytes, gives it up.
constexpr double kBytesPerSecond = 100'000;
// The most memory that a process may take, and the most bytes of a text.
constexpr uint64_t kMaxMemory = uint64_t{4} << 30;
constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

}  // namespace template_helper

using Json = nlohmann::json;
using template_helper::Head;
using template_helper::Outcome;

constexpr uint64_t kMaxAnswerBytes =
    2 * template_helper::kMaxBytes + (uint64_t{64} << 20);
constexpr uint64_t kMaxReasonBytes = 1 << 16;

constexpr char kNoJinja[] =
    "model.chat_template: checkpoint needs a python3 with jinja2, which "
    "renders "
    "the checkpoint's template; install Debian's python3-jinja2, or `pip "
    "install jinja2` for the first python3 of PATH, or name a template of "
    "docs/text.md";

size_t GetProcesses(const TemplateRenderer::Options& options) {
  if (options.processes > 0) return options.processes;
  return std::max<size_t>(1, Cores() * 3 / 4);
}

// Takes what the program, which has run untrusted code, says of one
// conversation. False: it contradicts itself.
bool TakeResult(absl::string_view* from, RenderedConversation* result,
                absl::Status* status) {
  Outcome head;
  if (!Take(from, &head)) return false;
  RenderedConversation rendered;
  const uint64_t numbers =
      uint64_t{head.spans} * sizeof(template_helper::SpanRecord) +
      uint64_t{head.answers} * sizeof(template_helper::Answer);
  if (from->size() < numbers ||
      from->size() - numbers < uint64_t{head.bytes} + head.left_out) {
    return false;
  }
  size_t last = 0;
  for (uint32_t i = 0; i < head.spans; ++i) {
    template_helper::SpanRecord span;
    Take(from, &span);
    if (span.begin > span.end || span.end > head.bytes) return false;
    // A span within another, or before it, as of a macro's.
    const size_t begin = std::max<size_t>(span.begin, last);
    last = std::max<size_t>(span.end, last);
    rendered.spans.push_back({begin, last});
  }
  for (uint32_t i = 0; i < head.answers; ++i) {
    template_helper::Answer answer;
    Take(from, &answer);
    if (!(answer.weight >= 0 && answer.weight <= 1)) return false;
    rendered.answers.push_back(
        {answer.turn, answer.weight,
         (answer.flags & template_helper::kHasOwnThought) != 0});
  }
  rendered.text = std::string(from->substr(0, head.bytes));
  from->remove_prefix(head.bytes);
  rendered.left_out = std::string(from->substr(0, head.left_out));
  from->remove_prefix(head.left_out);
  if (!CheckUtf8(rendered.text).ok()) return false;
  if (head.kind == template_helper::kDone) {
    *status = absl::OkStatus();
  } else if (head.kind == template_helper::kTooLong) {
    *status = absl::UnavailableError(
        absl::StrCat("the chat template: ", rendered.text));
  } else {
    *status = DataFaultError(absl::StrCat(
        "the chat template refuses the conversation: ", rendered.text));
  }
  *result = std::move(rendered);
  return true;
}

}  // namespace

// One caller's conversation, until it is rendered.
struct TemplateRenderer::Waiting : HelperPool::Job {
  Request request;
  RenderedConversation rendered;
};

TemplateRenderer::TemplateRenderer(const Options& options)
    : options_(options) {}

absl::StatusOr<std::unique_ptr<TemplateRenderer>> TemplateRenderer::Create(
    const JinjaTemplate& source, const Options& options) {
  auto renderer = absl::WrapUnique(new TemplateRenderer(options));
  const Json setup = {{"template", source.text},
                      {"tool_use", source.tool_use},
                      {"variables", Json::parse(source.variables)},
                      {"reasoning", options.reasoning},
                      {"system_prompt", options.system_prompt},
                      {"date", options.date},
                      {"seconds", options.seconds},
                      {"bytes_a_second", template_helper::kBytesPerSecond},
                      {"most_bytes", template_helper::kMaxBytes}};
  renderer->setup_ = setup.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::vector<std::string> failed;
  for (const std::string& python : FindPythons()) {
    renderer->python_ = python;
    renderer->MakePool();
    const absl::Status status = renderer->pool_->Start();
    if (status.ok()) return renderer;
    // The template's own fault; a process that cannot be started says else.
    if (absl::IsInvalidArgument(status) && !IsDataFault(status)) return status;
    if (absl::IsUnavailable(status)) return status;
    failed.push_back(python);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      kNoJinja, "; found ",
      failed.empty() ? "no python3"
                     : absl::StrCat("none in ", absl::StrJoin(failed, ", "))));
}

void TemplateRenderer::MakePool() {
  pool_ = std::make_unique<HelperPool>(HelperPool::Options{
      .helper = {.name = "jinja2, which renders the chat template,",
                 .libraries = kNoJinja,
                 .input_fault = DataFaultError,
                 .patience = options_.patience,
                 .counters = &GetCounters(PythonUse::kTemplates),
                 .prepare =
                     [this](HelperProcess* helper) { return Prepare(helper); }},
      .launch = [this] { return StartPython(python_); },
      .ask = AskFor,
      .is_fault = IsDataFault,
      .processes = GetProcesses(options_)});
}

absl::Status TemplateRenderer::Prepare(HelperProcess* helper) const {
  uint32_t kind = 0;
  std::string answer;
  const absl::string_view program(reinterpret_cast<const char*>(kRenderer),
                                  kRendererBytes);
  const absl::string_view trials(reinterpret_cast<const char*>(kTrials),
                                 kTrialsBytes);
  BALLAST_RETURN_IF_ERROR(
      SendModules(helper, {{"trials", trials}, {"renderer", program}}));
  BALLAST_RETURN_IF_ERROR(helper->Receive(kMaxReasonBytes, &kind, &answer));
  const Json versions = Json::parse(answer, nullptr, false);
  if (!versions.is_object()) {
    return absl::FailedPreconditionError(kNoJinja);
  }
  const std::string version = versions.value("jinja2", "");
  BALLAST_RETURN_IF_ERROR(CloseBox(helper, template_helper::kMaxMemory));
  BALLAST_RETURN_IF_ERROR(helper->Send(template_helper::kTemplate, {setup_}));
  BALLAST_RETURN_IF_ERROR(helper->Receive(kMaxReasonBytes, &kind, &answer));
  if (kind != template_helper::kDone) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the chat template is refused by jinja2 ", version, ": ", answer));
  }
  MutexLock lock(&mutex_);
  if (jinja_version_.empty()) {
    jinja_version_ = version;
    has_generation_ =
        Json::parse(answer, nullptr, false).value("generation", false);
  } else if (jinja_version_ != version) {
    return absl::UnavailableError(absl::StrCat("jinja2 was ", jinja_version_,
                                               " and is now ", version,
                                               "; restart the server"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RenderedConversation> TemplateRenderer::Render(
    const Request& request) const {
  return std::move(RenderAll({request})[0]);
}

std::vector<absl::StatusOr<RenderedConversation>> TemplateRenderer::RenderAll(
    absl::Span<const Request> requests) const {
  std::vector<Waiting> own(requests.size());
  std::vector<HelperPool::Job*> jobs;
  for (size_t i = 0; i < own.size(); ++i) {
    own[i].request = requests[i];
    own[i].bytes = requests[i].json.size();
    jobs.push_back(&own[i]);
  }
  pool_->Run(jobs);
  std::vector<absl::StatusOr<RenderedConversation>> results;
  for (Waiting& one : own) {
    if (one.status.ok()) {
      results.push_back(std::move(one.rendered));
    } else {
      results.push_back(one.status);
    }
  }
  return results;
}

absl::Status TemplateRenderer::AskFor(HelperPool::Worker* worker,
                                      absl::Span<HelperPool::Job* const> jobs) {
  HelperProcess* const helper = worker->helper.get();
  const auto count = static_cast<uint32_t>(jobs.size());
  worker->request = std::string(GetBytes(count));
  for (const HelperPool::Job* job : jobs) {
    const Request& request = static_cast<const Waiting*>(job)->request;
    const Head head = {
        (request.has_images ? template_helper::kHasImages : 0) |
            (request.by_prefixes ? template_helper::kByPrefixes : 0) |
            (request.has_videos ? template_helper::kHasVideos : 0),
        static_cast<uint32_t>(request.json.size())};
    absl::StrAppend(&worker->request, GetBytes(head));
  }
  for (const HelperPool::Job* job : jobs) {
    absl::StrAppend(&worker->request,
                    static_cast<const Waiting*>(job)->request.json);
  }
  return helper->Ask([&]() -> absl::Status {
    uint32_t kind = 0;
    BALLAST_RETURN_IF_ERROR(
        helper->Send(template_helper::kRender, {worker->request}));
    BALLAST_RETURN_IF_ERROR(
        helper->Receive(kMaxAnswerBytes, &kind, &worker->answer));
    absl::string_view answer = worker->answer;
    uint32_t answered = 0;
    bool is_sound = Take(&answer, &answered) && answered == count;
    for (size_t i = 0; is_sound && i < jobs.size(); ++i) {
      auto* const job = static_cast<Waiting*>(jobs[i]);
      is_sound = TakeResult(&answer, &job->rendered, &job->status);
    }
    if (is_sound && answer.empty()) return absl::OkStatus();
    helper->Stop(HelperEnd::kAnswer);
    return DataFaultError(
        "the chat template: an answer that contradicts itself");
  });
}

}  // namespace ballast
