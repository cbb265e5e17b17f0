#include "server/text/template/template_renderer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/helper_program.h"
#include "common/small_file.h"
#include "server/sample/data_fault.h"
#include "server/text/template/rendered_text.h"
#include "tests/server/text/template/renderer_fixture.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

class TemplateRendererTest : public RendererTest {
 protected:
  // What a template says of a conversation.
  static std::string Say(const std::string& text,
                         absl::string_view json = kOneQuestion,
                         const TemplateRenderer::Options& options = {}) {
    const auto rendered = Make(text, options)->Render({json});
    if (rendered.ok()) return rendered->text;
    EXPECT_TRUE(IsDataFault(rendered.status())) << rendered.status();
    return std::string(rendered.status().message());
  }
};

TEST_F(TemplateRendererTest, RefusesASyntaxErrorAtTheStart) {
  const auto renderer =
      TemplateRenderer::Create({.text = "a\n{% for x in %}"}, {});
  EXPECT_TRUE(absl::IsInvalidArgument(renderer.status()));
  EXPECT_THAT(std::string(renderer.status().message()),
              HasSubstr("line 2: Expected an expression"));
}

TEST_F(TemplateRendererTest, RefusalsHaveTheTemplatesWords) {
  EXPECT_THAT(Say("{{ raise_exception('Roles must alternate') }}"),
              HasSubstr("refuses the conversation: Roles must alternate"));
  EXPECT_THAT(Say("{{ messages.__class__.__mro__ }}"),
              HasSubstr("access to attribute '__class__' of 'list' object is "
                        "unsafe"));
  EXPECT_THAT(Say("{{ messages.append(1) }}"),
              HasSubstr("'append' of 'list' object is unsafe"));
  EXPECT_THAT(Say("{{ namespace(__x=1) }}"), HasSubstr("'__x'"));
  EXPECT_THAT(Say("{{ 1 / 0 }}"), HasSubstr("ZeroDivisionError"));
  EXPECT_THAT(Say("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("RecursionError"));
}

TEST_F(TemplateRendererTest, AnEndlessLoopCostsItsSampleAlone) {
  const auto renderer = Make(
      "{% if messages[0].content == 'Why?' %}{% for a in range(99999) %}"
      "{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}ok",
      {.seconds = 0.3});
  const std::string harmless =
      R"({"messages": [{"role": "u", "content": ""}]})";
  const auto all =
      renderer->RenderAll({{harmless}, {kOneQuestion}, {harmless}});
  EXPECT_EQ(all[0]->text, "ok");
  EXPECT_TRUE(absl::IsUnavailable(all[1].status()));
  EXPECT_THAT(std::string(all[1].status().message()),
              HasSubstr("more processor time"));
  EXPECT_EQ(all[2]->text, "ok");
}

TEST_F(TemplateRendererTest, HugeTextsAndMemoryAreDataFaults) {
  EXPECT_THAT(Say("{% for a in range(99999) %}{{ 'x' * 9999 }}{% endfor %}"),
              HasSubstr("over 67108864 bytes"));
  EXPECT_THAT(Say("{{ messages[0].content * 4000000000 }}"),
              HasSubstr("more memory"));
}

TEST_F(TemplateRendererTest, TheBoxHasNoFilesAndNoPrograms) {
  // Nothing leads out of the sandbox, and an import of jinja2's own fails.
  EXPECT_THAT(Say("{% include 'etc/passwd' %}"), HasSubstr("no loader"));
  EXPECT_THAT(Say("{{ cycler.__init__.__globals__.os.popen('id').read() }}"),
              HasSubstr("unsafe"));
}

TEST_F(TemplateRendererTest, DatesAreGivenOrRefused) {
  const std::string text = "{{ strftime_now('%d %b %Y') }}";
  EXPECT_EQ(Say(text, kOneQuestion, {.date = "2024-07-26"}), "26 Jul 2024");
  EXPECT_THAT(Say(text), HasSubstr("model.template_date"));
  EXPECT_THAT(Say(text, kOneQuestion, {.date = "now"}), HasSubstr(" 20"));
}

TEST_F(TemplateRendererTest, ReadsTheFormsOfData) {
  const std::string roles =
      "{% for m in messages %}{{ m.role }}={{ m.content }}"
      "{{ m.tool_calls | tojson if m.tool_calls else '' }};{% endfor %}"
      "{{ tools | tojson }}";
  EXPECT_EQ(Say(roles, R"({"conversations": [
      {"from": "human", "value": "q"},
      {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {}}"},
      {"from": "observation", "value": "o"}, {"from": "gpt", "value": "a"}],
      "system": "s", "tools": "[{\"name\": \"f\"}]"})"),
            R"(system=s;user=q;assistant=[{"type": "function", "function": )"
            R"({"name": "f", "arguments": {}}}];tool=o;assistant=a;)"
            R"([{"name": "f"}])");
  // JSON text in place of lists, and keys that are null.
  EXPECT_EQ(Say(roles, R"({"messages": "[{\"role\": \"user\", )"
                       R"(\"content\": \"q\", \"tool_calls\": null}]",
                       "tools": null})"),
            "user=q;null");
  EXPECT_EQ(Say(roles, R"({"messages": [{"role": "user", "content": "q",
      "tool_calls": "[{\"b\": 1, \"a\": 2}]"}]})"),
            R"(user=q[{"b": 1, "a": 2}];null)");
  EXPECT_THAT(Say(roles, R"({"conversations": [{"from": "narrator",
                                                "value": ""}]})"),
              HasSubstr("turn 1: unknown `from` 'narrator'"));
  EXPECT_THAT(Say(roles, R"({"messages": []})"), HasSubstr("no list of turns"));
  EXPECT_THAT(Say(roles, R"({"messages": [{"content": "q"}]})"),
              HasSubstr("turn 1: `role` is missing"));
  EXPECT_THAT(Say(roles, R"({"messages": [{"role": "assistant", "content": "q",
                                           "weight": 1.5}]})"),
              HasSubstr("turn 1: `weight` is 1.5; wanted 0 to 1"));
  EXPECT_THAT(Say(roles, R"({"messages": [{"role": "assistant", "content": "q",
                                           "weight": "1"}]})"),
              HasSubstr("`weight` is '1'; wanted 0 to 1"));
  for (const char* keys :
       {R"("train": "false")", R"("loss": "False")", R"("train": [0])"}) {
    EXPECT_THAT(Say(roles, absl::StrCat(R"({"messages": [{"role": "assistant",
                                            "content": "q", )",
                                        keys, "}]}")),
                HasSubstr("; wanted 0 to 1"))
        << keys;
  }
  for (const char* keys : {R"("train": null)", R"("loss": "low")",
                           R"("weight": "")", R"("loss": 1.25)"}) {
    EXPECT_EQ(Say(roles, absl::StrCat(R"({"messages": [{"role": "assistant",
                                          "content": "q", )",
                                      keys, "}]}")),
              "assistant=q;null")
        << keys;
  }
  EXPECT_THAT(Say(roles, "[1"), HasSubstr("JSONDecodeError"));
  // Bridge's key; and keys of which nothing would be read.
  EXPECT_EQ(Say(roles, R"({"conversation": [{"role": "user",
                                             "content": "q"}]})"),
            "user=q;null");
  EXPECT_THAT(Say(roles, R"({"conversation": [{"role": "u"}],
                             "messages": [{"role": "u"}]})"),
              HasSubstr("wanted one of the two"));
  EXPECT_THAT(Say(roles, R"({"messages": [{"role": "system", "content": "a"}],
                             "system": "b"})"),
              HasSubstr("another than the first turn"));
  EXPECT_THAT(Say(roles, R"({"messages": [{"role": "u", "content": "a"}],
                             "functions": [{"name": "f"}]})"),
              HasSubstr("wanted `tools`"));
}

TEST_F(TemplateRendererTest, SaysWhatATemplateLeavesOut) {
  const auto left_out = [](const std::string& text, absl::string_view json) {
    const auto rendered = Make(text)->Render({json});
    EXPECT_TRUE(rendered.ok()) << rendered.status();
    return rendered.ok() ? rendered->left_out : "";
  };
  const std::string plain =
      "{% for m in messages if m.role != 'narrator' %}{{ m.role }}="
      "{{ m.content if m.content is string else m.content[0].text }};"
      "{% endfor %}";
  const std::string agent = R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "", "tool_calls": [
          {"type": "function", "function": {"name": "f", "arguments": {}}}]}],
      "tools": [{"type": "function", "function": {"name": "f"}}]})";
  EXPECT_EQ(left_out(plain, kOneQuestion), "");
  EXPECT_EQ(left_out(plain, agent), "`tools`");
  EXPECT_EQ(left_out(plain + "{{ tools | tojson }}", agent),
            "turn 2: `tool_calls`");
  EXPECT_EQ(
      left_out(plain + "{{ tools | tojson }}{{ messages | tojson }}", agent),
      "");
  EXPECT_EQ(left_out(plain, R"({"messages": [
                {"role": "assistant", "content": "a", "thinking": "t"}]})"),
            "turn 1: `reasoning_content`");
  EXPECT_EQ(left_out(plain, R"({"system": "s", "messages": [
                {"role": "user", "content": "q"},
                {"role": "narrator", "content": "n"}]})"),
            "turn 2: the turn, of role 'narrator'");
  EXPECT_EQ(left_out(plain, R"({"messages": [{"role": "user", "content": [
                {"type": "text", "text": "q"}, {"type": "audio"}]}]})"),
            "turn 1: a part of type 'audio'");
  EXPECT_EQ(left_out(plain, R"({"messages": [{"role": "user", "content": "q"}],
                                "documents": [{"text": "d"}]})"),
            "`documents`");
}

// A template may write a text in one place and leave it out in another.
TEST_F(TemplateRendererTest, SaysWhatATemplateLeavesOutOfAConversation) {
  const auto left_out = [](const std::string& text, absl::string_view turns) {
    const std::string json = absl::StrCat(
        R"({"messages": [{"role": "user", "content": "q"}, )", turns, "]}");
    const auto rendered = Make(text)->Render({json});
    EXPECT_TRUE(rendered.ok()) << rendered.status();
    return rendered.ok() ? rendered->left_out : "";
  };
  // The text of a turn with calls, and all calls but the first.
  const std::string calls =
      "{% for m in messages %}{% if m.tool_calls %}"
      "{{ m.tool_calls[0].function | tojson }}{% else %}{{ m.content }}"
      "{% endif %}{% endfor %}";
  const std::string call =
      R"({"type": "function", "id": "1",
          "function": {"name": "f", "arguments": {"a": 1, "b": "c"}}})";
  EXPECT_EQ(left_out(calls, absl::StrCat(R"({"role": "assistant", "content": "",
                                            "tool_calls": [)",
                                         call, "]}")),
            "");
  EXPECT_EQ(left_out(calls,
                     absl::StrCat(R"({"role": "assistant", "content": "I look.",
                                      "tool_calls": [)",
                                  call, "]}")),
            "turn 2: its text next to `tool_calls`");
  EXPECT_EQ(left_out(calls, absl::StrCat(R"({"role": "assistant",
                                            "tool_calls": [)",
                                         call, ", ", call, "]}")),
            "turn 2: the arguments of call 2 of `tool_calls`");
  // Arguments as a text, as OpenAI's.
  EXPECT_EQ(
      left_out("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls "
               "or [] %}{{ c.function.name }}{% if c.function.arguments is "
               "mapping %}{{ c.function.arguments | tojson }}{% endif %}"
               "{% endfor %}{% endfor %}",
               R"({"role": "assistant", "content": "", "tool_calls": [
                   {"function": {"name": "f", "arguments": "{\"a\": \"b\"}"}}]})"),
      "turn 2: the arguments of call 1 of `tool_calls`, a text; give an "
      "object");
  // A system turn that is not the first, and a part that is not.
  const std::string first =
      "{% for m in messages %}{% if m.role != 'system' or loop.first %}"
      "{{ m.content if m.content is string else m.content[0].text }}"
      "{% endif %}{% endfor %}";
  EXPECT_EQ(left_out(first, R"({"role": "system", "content": "s"})"),
            "turn 2: its text");
  EXPECT_EQ(left_out(first, R"({"role": "user", "content": [
                {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})"),
            "turn 2: part 2 of its content");
  EXPECT_THAT(left_out("{% for m in messages %}{{ m.content }}{% endfor %}",
                       R"({"role": "user", "content": [
                             {"type": "text", "text": "a"}]})"),
              HasSubstr("turn 2: its parts as such"));
  // Reasoning within the text, as DeepSeek's templates.
  const std::string splits =
      "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor "
      "%}";
  const std::string thinks =
      R"({"role": "assistant", "content": "<think>t</think>a"})";
  EXPECT_EQ(left_out(splits, thinks),
            "turn 2: the reasoning within its content");
  EXPECT_EQ(left_out("{{ messages | tojson }}", thinks), "");
}

TEST_F(TemplateRendererTest, TextsBecomePartsWhereNothingElseIsWritten) {
  EXPECT_EQ(Say("{% for m in messages %}{% for p in m.content %}"
                "{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}"
                "{% endfor %}"),
            "Why?");
}

TEST_F(TemplateRendererTest, ToolsHaveATemplateOfTheirOwn) {
  const auto renderer = TemplateRenderer::Create(
      {.text = "plain", .tool_use = "{{ tools | tojson }}"}, {});
  ASSERT_TRUE(renderer.ok()) << renderer.status();
  EXPECT_EQ((*renderer)->Render({kOneQuestion})->text, "plain");
  EXPECT_EQ((*renderer)
                ->Render({R"({"messages": [{"role": "user", "content": "q"}],
                              "tools": ["t"]})"})
                ->text,
            R"(["t"])");
  const auto mixed = TemplateRenderer::Create(
      {.text = "a", .tool_use = "{% generation %}{% endgeneration %}"}, {});
  EXPECT_TRUE(absl::IsInvalidArgument(mixed.status())) << mixed.status();
}

TEST_F(TemplateRendererTest, ThoughtsGoWithPartsAndToolResponses) {
  const std::string whole = "{{ messages | map(attribute='content') | list }}";
  // The answer of a tool is no question.
  const std::string json = R"({"messages": [
      {"role": "user", "content": "q"},
      {"role": "assistant", "content": "<think>a</think>\n\nb"},
      {"role": "user", "content": "<tool_response>x</tool_response>"},
      {"role": "assistant", "content": "c</think>d"}]})";
  EXPECT_EQ(Say(whole, json, {.reasoning = "last"}),
            "['q', '<think>a</think>\\n\\nb', "
            "'<tool_response>x</tool_response>', 'c</think>d']");
  EXPECT_EQ(Say(whole, json, {.reasoning = "drop"}),
            "['q', 'b', '<tool_response>x</tool_response>', 'd']");
  EXPECT_EQ(
      Say("{{ messages | tojson }}", R"({"messages": [{"role": "assistant",
          "content": [{"type": "thinking", "thinking": "t"},
                      {"type": "text", "text": "a"}]}]})",
          {.reasoning = "drop"}),
      R"([{"role": "assistant", "content": [{"type": "text", "text": "a"}]}])");
}

TEST_F(TemplateRendererTest, MarksOfImagesAreParts) {
  const auto renderer = Make("{{ messages | tojson }}");
  const std::string json =
      R"({"messages": [{"role": "user", "content": "<image>\nWhy?"},
          {"role": "user", "content": [
              {"type": "image_url", "image_url": {"url": "a.png"}}]}]})";
  const auto with = renderer->Render({json, /*marks_are_parts=*/true});
  EXPECT_EQ(with->text,
            R"([{"role": "user", "content": [{"type": "image"}, {"type": )"
            R"("text", "text": "\nWhy?"}]}, {"role": "user", "content": )"
            R"([{"type": "image", "url": "a.png"}]}])");
  const auto without = renderer->Render({json});
  EXPECT_THAT(without->text, HasSubstr(R"("content": "<image>\nWhy?")"));
  const std::string both =
      R"({"messages": [{"role": "user", "content": "<video><image>"}]})";
  EXPECT_THAT(
      renderer->Render({.json = both, .has_images = true, .has_videos = true})
          ->text,
      HasSubstr(R"([{"type": "video"}, {"type": "image"}])"));
  EXPECT_THAT(renderer->Render({.json = both, .has_videos = true})->text,
              HasSubstr(R"([{"type": "video"}, {"type": "video"}])"));
  EXPECT_THAT(renderer->Render({.json = both, .has_images = true})->text,
              HasSubstr(R"("text": "<video>"}, {"type": "image"})"));
}

TEST_F(TemplateRendererTest, ThreadsShareAProcess) {
  const auto renderer = Make("{{ messages[0].content }}", {.processes = 1});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&renderer, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string said = absl::StrCat(t, " ", i);
        const std::string json = absl::StrCat(
            R"({"messages": [{"role": "u", "content": ")", said, R"("}]})");
        const auto rendered = renderer->Render({json});
        ASSERT_TRUE(rendered.ok()) << rendered.status();
        EXPECT_EQ(rendered->text, said);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The helpers of this process. Tests run one after another.
std::vector<pid_t> GetChildren() {
  std::vector<pid_t> children;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream list(task.path() / "children");
    for (pid_t child; list >> child;) children.push_back(child);
  }
  return children;
}

TEST_F(TemplateRendererTest, AKilledProcessIsStartedAgain) {
  const auto renderer = Make("{{ messages[0].content }}", {.processes = 1});
  const std::vector<pid_t> children = GetChildren();
  if (children.empty()) GTEST_SKIP() << "this kernel does not list children";
  ASSERT_EQ(children.size(), 1u);
  EXPECT_EQ(renderer->Render({kOneQuestion})->text, "Why?");
  kill(children[0], SIGKILL);
  EXPECT_EQ(renderer->Render({kOneQuestion})->text, "Why?");
  EXPECT_NE(GetChildren(), children);
}

TEST_F(TemplateRendererTest, TheProcessIsInABox) {
  if (!CanBoxHelpers()) GTEST_SKIP() << "this kernel has no seccomp";
  const auto renderer = Make("x");
  const std::vector<pid_t> children = GetChildren();
  if (children.empty()) GTEST_SKIP() << "this kernel does not list children";
  const std::string place = absl::StrCat("/proc/", children[0]);
  std::stringstream status;
  status << std::ifstream(place + "/status").rdbuf();
  EXPECT_THAT(status.str(), HasSubstr("Seccomp:\t2"));
  EXPECT_THAT(status.str(), HasSubstr("NoNewPrivs:\t1"));
  size_t descriptors = 0;
  for (const auto& entry : std::filesystem::directory_iterator(place + "/fd")) {
    static_cast<void>(entry);
    ++descriptors;
  }
  EXPECT_EQ(descriptors, 5u);  // null three times, socket, lifeline
}

// A process that kept conversations would refuse later ones for its memory.
TEST_F(TemplateRendererTest, RemembersLooksAndNotConversations) {
  const auto renderer = Make(
      "{% for m in messages %}{{ m.content }}{% endfor %}"
      "{{ tools[0].function.name }}",
      {.processes = 1});
  const std::vector<pid_t> children = GetChildren();
  if (children.empty()) GTEST_SKIP() << "this kernel does not list children";
  constexpr size_t kBytes = size_t{2} << 20;  // of the tools of each
  const auto render = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      const std::string json = absl::StrCat(
          R"({"messages": [{"role": "user", "content": "q"}], "tools": [
              {"function": {"name": "f", "description": ")",
          i, std::string(kBytes, 'd'), R"("}}]})");
      const auto rendered = renderer->Render({json});
      ASSERT_TRUE(rendered.ok()) << rendered.status();
      ASSERT_EQ(rendered->text, "qf");
      ASSERT_EQ(rendered->left_out, "");
    }
  };
  const auto get_bytes = [&] {
    std::ifstream file(absl::StrCat("/proc/", children[0], "/statm"));
    size_t all = 0, resident = 0;
    EXPECT_TRUE(file >> all >> resident);
    return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  };
  render(0, 8);
  const size_t before = get_bytes();
  render(8, 40);
  EXPECT_LT(get_bytes(), before + 16 * kBytes);
}

TEST_F(TemplateRendererTest, ProcessorTimeThatNoHandlerStopsEndsTheProcess) {
  const auto renderer = Make(
      "{% set count = messages[0].content | length %}{{ (7 ** (count ** "
      "9)).bit_length() if count in (1, 17) else messages[0].content }}",
      {.seconds = 0.1, .processes = 1});
  const auto json = [](absl::string_view said) {
    return absl::StrCat(R"({"messages": [{"role": "u", "content": ")", said,
                        R"("}]})");
  };
  const auto refused = renderer->Render({json("seventeen letters")});
  EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("more processor time"));
  EXPECT_EQ(renderer->Render({json("1")})->text, "3");
}

class JinjaTemplateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(
        ::testing::TempDir(), "/",
        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(absl::StrCat(folder_, "/", name)) << text;
  }
  std::string tokenizer() const { return folder_ + "/tokenizer.json"; }

  std::string folder_;
};

TEST_F(JinjaTemplateTest, StandsBesideTheTokenizer) {
  const auto none = ReadJinjaTemplate(tokenizer());
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("wanted chat_template.jinja there"));
  Write("tokenizer_config.json",
        R"({"chat_template": "of the config", "bos_token": "<s>",
            "eos_token": {"content": "</s>"}, "pad_token": null})");
  Write("special_tokens_map.json", R"({"bos_token": "no", "unk_token": "u"})");
  auto read = ReadJinjaTemplate(tokenizer());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->text, "of the config");
  EXPECT_EQ(read->variables,
            R"({"bos_token":"<s>","eos_token":"</s>","unk_token":"u"})");
  Write("chat_template.jinja", "of its own");
  EXPECT_EQ(ReadJinjaTemplate(tokenizer())->text, "of its own");
}

TEST_F(JinjaTemplateTest, ToolsMayHaveATemplate) {
  Write("tokenizer_config.json", R"({"chat_template": [
      {"name": "tool_use", "template": "tools"},
      {"name": "default", "template": "plain"}]})");
  EXPECT_EQ(ReadJinjaTemplate(tokenizer())->text, "plain");
  EXPECT_EQ(ReadJinjaTemplate(tokenizer())->tool_use, "tools");
  const std::string hash = ReadJinjaTemplate(tokenizer())->hash();
  Write("chat_template.jinja", "plain");
  EXPECT_EQ(ReadJinjaTemplate(tokenizer())->tool_use, "");
  EXPECT_NE(ReadJinjaTemplate(tokenizer())->hash(), hash);
  std::filesystem::create_directories(folder_ + "/additional_chat_templates");
  Write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(ReadJinjaTemplate(tokenizer())->tool_use, "tools");
  EXPECT_EQ(ReadJinjaTemplate(tokenizer())->hash(), hash);
}

TEST_F(JinjaTemplateTest, TheNameFollowsTextVariablesAndVersion) {
  const JinjaTemplate one = {.text = "a"};
  const JinjaTemplate other = {.text = "b"};
  const JinjaTemplate variables = {.text = "a", .variables = R"({"a":"b"})"};
  EXPECT_NE(one.hash(), other.hash());
  EXPECT_NE(one.hash(), variables.hash());
  EXPECT_EQ(CheckpointTemplateName(one, "3.1.6"),
            absl::StrCat("checkpoint@", one.hash(), "+jinja2-3.1.6"));
  EXPECT_TRUE(IsCheckpointTemplate("checkpoint"));
  EXPECT_TRUE(IsCheckpointTemplate(CheckpointTemplateName(one, "3.1.6")));
  EXPECT_FALSE(IsCheckpointTemplate("chatml"));
}

// Compares texts and what is supervised of them with transformers', as written
// by make_vectors.py.

using Json = nlohmann::ordered_json;

constexpr char kVectors[] =
    "tests/server/text/template/testdata/templates.json";

constexpr int kTemplates = 23;

Json ReadVectors() {
  return Json::parse(ReadSmallFile(kVectors, size_t{1} << 20).value());
}

class TemplateVectorsTest : public RendererTest,
                            public ::testing::WithParamInterface<int> {
 protected:
  static absl::StatusOr<std::unique_ptr<TemplateRenderer>> Make(
      const Json& vectors, const std::string& name,
      const std::string& reasoning) {
    return TemplateRenderer::Create({.text = vectors["templates"][name],
                                     .variables = vectors["variables"].dump()},
                                    {.reasoning = reasoning, .processes = 1});
  }

  static void Check(const Json& vectors, const Json& expected,
                    const TemplateRenderer& renderer) {
    SCOPED_TRACE(expected.dump());
    const std::string json =
        vectors["rows"][expected["row"].get<size_t>()].dump();
    const auto got = RenderSupervised(renderer, {}, json, /*has_images=*/false);
    if (expected.contains("refused")) {
      EXPECT_THAT(std::string(got.status().message()),
                  HasSubstr("it leaves out the reasoning"));
      return;
    }
    if (expected.contains("error")) {
      EXPECT_TRUE(IsDataFault(got.status()));
      // The date comes first, and none is given.
      if (expected["template"] == "date") return;
      EXPECT_THAT(std::string(got.status().message()),
                  HasSubstr(expected["error"].get<std::string>()));
      return;
    }
    if (expected["pieces"].is_null()) {
      EXPECT_TRUE(IsDataFault(got.status()));
      EXPECT_THAT(std::string(got.status().message()),
                  HasSubstr("{% generation %}"));
      EXPECT_EQ(renderer.Render({json})->text, expected["text"]);
      return;
    }
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->text, expected["text"]);
    std::vector<std::string> pieces;
    for (const auto& span : got->supervised) {
      pieces.push_back(got->text.substr(span.begin, span.end - span.begin));
    }
    EXPECT_EQ(pieces, expected["pieces"].get<std::vector<std::string>>());
  }
};

TEST_P(TemplateVectorsTest, TextAndSpansEqualTransformers) {
  const Json vectors = ReadVectors();
  ASSERT_EQ(vectors["templates"].size(), kTemplates);
  ASSERT_GT(vectors["cases"].size(), 400u);
  const std::string name =
      std::next(vectors["templates"].begin(), GetParam()).key();
  std::map<std::string, std::vector<Json>> cases;  // by model.reasoning
  for (const Json& each : vectors["cases"]) {
    if (each["template"] != name) continue;
    cases[each.value("reasoning", "template")].push_back(each);
  }
  for (const auto& [reasoning, of_reasoning] : cases) {
    const auto made = Make(vectors, name, reasoning);
    ASSERT_TRUE(made.ok()) << made.status();
    for (const Json& each : of_reasoning) Check(vectors, each, **made);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TemplateVectorsTest,
                         ::testing::Range(0, kTemplates));

using NeverKeepTest = RendererTest;

TEST_F(NeverKeepTest, TemplatesThatKeepNoReasoningAreRefusedByName) {
  const Json vectors = ReadVectors();
  ASSERT_EQ(vectors["never_keep"].size(), 2u);
  for (const std::string name : vectors["never_keep"]) {
    SCOPED_TRACE(name);
    const auto made =
        TemplateRenderer::Create({.text = vectors["templates"][name],
                                  .variables = vectors["variables"].dump()},
                                 {.reasoning = "keep"});
    EXPECT_TRUE(absl::IsInvalidArgument(made.status())) << made.status();
    EXPECT_THAT(std::string(made.status().message()),
                HasSubstr("model.reasoning is keep, and it writes no "
                          "reasoning"));
  }
}

}  // namespace
}  // namespace ballast
