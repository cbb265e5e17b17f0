#include "server/text/template/template_renderer.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/helper_program.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "server/corpus/data_fault.h"
#include "server/text/template/protocol.h"
#include "server/text/template/renderer_text.h"

namespace ballast {
namespace {

using Json = nlohmann::json;
using template_helper::BoxRequest;
using template_helper::Head;
using template_helper::Outcome;

// A request's conversations.
constexpr size_t kMostBatch = 64;
constexpr size_t kMostBatchBytes = size_t{1} << 20;
constexpr uint64_t kMostAnswerBytes =
    2 * template_helper::kMostBytes + (uint64_t{64} << 20);
constexpr uint64_t kMostReasonBytes = 1 << 16;

constexpr char kNoJinja[] =
    "model.chat_template: checkpoint needs a python3 with jinja2, which "
    "renders "
    "the checkpoint's template; install Debian's python3-jinja2, or `pip "
    "install jinja2` for the first python3 of PATH, or name a template of "
    "docs/text.md";

// Runs the program that comes in the first frame.
constexpr char kLoader[] = R"(import os, struct
size = struct.unpack("=IIQ", os.read(3, 16))[2]
text = b""
while len(text) < size:
    text += os.read(3, size - len(text)) or os._exit(0)
exec(compile(text, "renderer.py", "exec")))";

template <typename T>
absl::string_view GetBytes(const T& value) {
  return absl::string_view(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename T>
bool Take(absl::string_view* from, T* value) {
  if (from->size() < sizeof(T)) return false;
  std::memcpy(value, from->data(), sizeof(T));
  from->remove_prefix(sizeof(T));
  return true;
}

// Every python3 that PATH has, and Debian's.
std::vector<std::string> FindPythons() {
  std::vector<std::string> found;
  const char* const path = std::getenv("PATH");
  std::vector<std::string> folders =
      absl::StrSplit(path != nullptr ? path : "", ':', absl::SkipEmpty());
  folders.push_back("/usr/bin");
  for (const std::string& folder : folders) {
    const std::string file = absl::StrCat(folder, "/python3");
    if (std::find(found.begin(), found.end(), file) == found.end() &&
        access(file.c_str(), X_OK) == 0) {
      found.push_back(file);
    }
  }
  return found;
}

size_t ProcessesOf(const TemplateRenderer::Options& options) {
  if (options.processes > 0) return options.processes;
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  return std::max<size_t>(1, cores * 3 / 4);
}

// Takes what the program, which has run untrusted code, says of one
// conversation. False: it contradicts itself.
bool TakeResult(absl::string_view* from,
                absl::StatusOr<RenderedConversation>* result) {
  Outcome head;
  if (!Take(from, &head)) return false;
  RenderedConversation rendered;
  const uint64_t numbers =
      uint64_t{head.spans} * sizeof(template_helper::Span) +
      uint64_t{head.answers} * sizeof(uint32_t);
  if (from->size() < numbers ||
      from->size() - numbers < uint64_t{head.bytes} + head.left_out) {
    return false;
  }
  size_t last = 0;
  for (uint32_t i = 0; i < head.spans; ++i) {
    template_helper::Span span;
    Take(from, &span);
    if (span.begin > span.end || span.end > head.bytes) return false;
    // A span within another, or before it, as of a macro's.
    const size_t begin = std::max<size_t>(span.begin, last);
    last = std::max<size_t>(span.end, last);
    rendered.spans.push_back({begin, last});
  }
  for (uint32_t i = 0; i < head.answers; ++i) {
    uint32_t kind = 0;
    Take(from, &kind);
    rendered.answers.push_back({(kind & template_helper::kIsSupervised) != 0,
                                (kind & template_helper::kHasOwnThought) != 0});
  }
  rendered.text = std::string(from->substr(0, head.bytes));
  from->remove_prefix(head.bytes);
  rendered.left_out = std::string(from->substr(0, head.left_out));
  from->remove_prefix(head.left_out);
  if (!CheckUtf8(rendered.text).ok()) return false;
  if (head.kind == template_helper::kDone) {
    *result = std::move(rendered);
  } else {
    *result = DataFaultError(absl::StrCat(
        "the chat template refuses the conversation: ", rendered.text));
  }
  return true;
}

}  // namespace

TemplateRenderer::TemplateRenderer(const Options& options)
    : options_(options), most_processes_(ProcessesOf(options)) {}

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
                      {"most_bytes", template_helper::kMostBytes}};
  renderer->setup_ = setup.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::vector<std::string> failed;
  for (const std::string& python : FindPythons()) {
    renderer->python_ = python;
    auto process = renderer->MakeProcess();
    const absl::Status status =
        process->helper->Ask([] { return absl::OkStatus(); });
    if (status.ok()) {
      MutexLock lock(&renderer->mutex_);
      renderer->idle_.push_back(std::move(process));
      renderer->processes_ = 1;
      return renderer;
    }
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

std::unique_ptr<TemplateRenderer::Process> TemplateRenderer::MakeProcess()
    const {
  auto process = std::make_unique<Process>();
  process->helper = std::make_unique<HelperProcess>(
      HelperProcess::Options{
          .name = "jinja2, which renders the chat template,",
          .libraries = kNoJinja,
          .input_fault = DataFaultError,
          .patience = options_.patience,
          .prepare = [this](HelperProcess* helper) { return Prepare(helper); }},
      [this] {
        return StartHelper({.name = "ballast-jinja2",
                            .path = python_,
                            .arguments = {"-I", "-c", kLoader}});
      });
  return process;
}

absl::Status TemplateRenderer::Prepare(HelperProcess* helper) const {
  uint32_t kind = 0;
  std::string answer;
  const absl::string_view program(reinterpret_cast<const char*>(kRenderer),
                                  kRendererBytes);
  BALLAST_RETURN_IF_ERROR(helper->Send(0, {program}));
  BALLAST_RETURN_IF_ERROR(helper->Receive(kMostReasonBytes, &kind, &answer));
  const Json versions = Json::parse(answer, nullptr, false);
  if (!versions.is_object()) {
    return absl::FailedPreconditionError(kNoJinja);
  }
  const std::string version = versions.value("jinja2", "");
  const BoxRequest box = {template_helper::kMostMemory,
                          static_cast<uint64_t>(helper->process())};
  BALLAST_RETURN_IF_ERROR(helper->Send(
      template_helper::kBox, {GetBytes(box), GetBoxFilter(helper->process())}));
  BALLAST_RETURN_IF_ERROR(helper->Receive(kMostReasonBytes, &kind, &answer));
  BALLAST_RETURN_IF_ERROR(helper->Send(template_helper::kTemplate, {setup_}));
  BALLAST_RETURN_IF_ERROR(helper->Receive(kMostReasonBytes, &kind, &answer));
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
  for (size_t i = 0; i < own.size(); ++i) own[i].request = requests[i];
  const auto is_done = [&] {
    return std::all_of(own.begin(), own.end(),
                       [](const Waiting& one) { return one.is_done; });
  };
  mutex_.Lock();
  for (Waiting& one : own) waiting_.push_back(&one);
  while (!is_done()) {
    if (waiting_.empty() || (idle_.empty() && processes_ >= most_processes_)) {
      changed_.Wait(&mutex_);
      continue;
    }
    std::vector<Waiting*> batch;
    for (size_t bytes = 0; !waiting_.empty() && batch.size() < kMostBatch &&
                           bytes < kMostBatchBytes;) {
      batch.push_back(waiting_.front());
      bytes += batch.back()->request.json.size();
      waiting_.pop_front();
    }
    std::unique_ptr<Process> process;
    if (idle_.empty()) {
      ++processes_;
    } else {
      process = std::move(idle_.back());
      idle_.pop_back();
    }
    mutex_.Unlock();
    if (process == nullptr) process = MakeProcess();
    Serve(process.get(), batch);
    mutex_.Lock();
    for (Waiting* one : batch) one->is_done = true;
    idle_.push_back(std::move(process));
    changed_.NotifyAll();
  }
  mutex_.Unlock();
  std::vector<Result> results;
  for (Waiting& one : own) results.push_back(std::move(one.result));
  return results;
}

void TemplateRenderer::Serve(Process* process,
                             absl::Span<Waiting* const> batch) const {
  const absl::Status status = AskFor(process, batch);
  if (status.ok()) return;
  // One of them ended the process: each has its own now.
  if (IsDataFault(status) && batch.size() > 1) {
    for (Waiting* const& one : batch) {
      Serve(process, absl::MakeConstSpan(&one, 1));
    }
    return;
  }
  for (Waiting* one : batch) one->result = status;
}

absl::Status TemplateRenderer::AskFor(Process* process,
                                      absl::Span<Waiting* const> batch) const {
  HelperProcess* const helper = process->helper.get();
  const auto count = static_cast<uint32_t>(batch.size());
  process->request = std::string(GetBytes(count));
  for (const Waiting* one : batch) {
    const Head head = {
        (one->request.has_images ? template_helper::kHasImages : 0) |
            (one->request.by_prefixes ? template_helper::kByPrefixes : 0) |
            (one->request.has_videos ? template_helper::kHasVideos : 0),
        static_cast<uint32_t>(one->request.json.size())};
    absl::StrAppend(&process->request, GetBytes(head));
  }
  for (const Waiting* one : batch) {
    absl::StrAppend(&process->request, one->request.json);
  }
  return helper->Ask([&]() -> absl::Status {
    uint32_t kind = 0;
    BALLAST_RETURN_IF_ERROR(
        helper->Send(template_helper::kRender, {process->request}));
    BALLAST_RETURN_IF_ERROR(
        helper->Receive(kMostAnswerBytes, &kind, &process->answer));
    absl::string_view answer = process->answer;
    uint32_t answered = 0;
    bool is_sound = Take(&answer, &answered) && answered == count;
    for (size_t i = 0; is_sound && i < batch.size(); ++i) {
      is_sound = TakeResult(&answer, &batch[i]->result);
    }
    if (is_sound && answer.empty()) return absl::OkStatus();
    helper->Stop(HelperEnd::kAnswer);
    return DataFaultError(
        "the chat template: an answer that contradicts itself");
  });
}

}  // namespace ballast
