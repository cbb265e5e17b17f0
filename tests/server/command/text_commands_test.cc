#include "server/command/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "server/model/model_profile.h"
#include "server/text/model_tokenizer.h"
#include "tests/server/text/template/renderer_fixture.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

absl::Status InspectText(const std::string& input, std::string* output,
                         uint32_t axes = 3,
                         const std::string& profile = "qwen2_5_vl") {
  v1::Model model;
  model.set_profile(profile);
  model.set_position_axes(axes);
  EXPECT_TRUE(ApplyModelProfile(&model).ok());
  std::istringstream in(input);
  std::ostringstream out;
  const absl::Status status = InspectPositions(model, in, out);
  *output = out.str();
  return status;
}

// Text, an image of 4x4 patches at merge 2, text: positions continue after the
// larger side of the merged grid.
TEST(InspectPositionsTest, WritesOneListPerAxis) {
  std::string output;
  ASSERT_TRUE(
      InspectText("{\"input_ids\": [11, 12, 151652, 151655, 151655, 151655,"
                  " 151655, 13], \"image_grid_thw\": [[1, 4, 4]]}\n"
                  "{\"input_ids\": [5, 6]}\n",
                  &output)
          .ok());
  EXPECT_EQ(output,
            "{\"position_ids\":[[0,1,2,3,3,3,3,5],[0,1,2,3,3,4,4,5],"
            "[0,1,2,3,4,3,4,5]]}\n"
            "{\"position_ids\":[[0,1],[0,1],[0,1]]}\n");
  ASSERT_TRUE(InspectText("{\"input_ids\": [5, 6]}\n", &output, 1).ok());
  EXPECT_EQ(output, "{\"position_ids\":[[0,1]]}\n");
}

// A text, a video of three temporal patches of 1x1 tokens, a text. Qwen2.5-VL
// counts two positions a second, and Qwen3-VL a run of tokens for each patch.
TEST(InspectPositionsTest, PlacesVideosByTheirSeconds) {
  const std::string line = R"({"input_ids": [7, 151656, 151656, 151656, 8],)"
                           R"( "video_grid_thw": [[3, 2, 2]])";
  const struct {
    const char* profile;
    const char* more;
    const char* first_axis;
  } cases[] = {
      {"qwen2_vl", "}", "[0,1,2,3,4]"},
      {"qwen2_5_vl", "}", "[0,1,3,5,6]"},
      {"qwen2_5_vl", R"(, "second_per_grid_ts": [1.5]})", "[0,1,4,7,8]"},
      {"qwen3_vl", "}", "[0,1,2,3,4]"},
  };
  for (const auto& c : cases) {
    std::string output;
    const absl::Status status =
        InspectText(line + c.more, &output, 3, c.profile);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(output, HasSubstr(std::string("[") + c.first_axis))
        << c.profile << c.more;
  }
}

TEST(InspectPositionsTest, NamesBadLines) {
  struct Case {
    const char* line;
    const char* complaint;
  };
  const Case cases[] = {
      {"{\"ids\": [1]}", "unknown key `ids`"},
      {"{}", "`input_ids`"},
      {"{\"input_ids\": [1, 2.5]}", "`input_ids`[1]"},
      {"{\"input_ids\": [4294967296]}", "`input_ids`[0]"},
      {"{\"input_ids\": [-2147483649]}", "`input_ids`[0]"},
      {"{\"input_ids\": [1], \"image_grid_thw\": 1}", "`image_grid_thw`"},
      {"{\"input_ids\": [1], \"image_grid_thw\": [[1, 2]]}",
       "`image_grid_thw`[0]"},
      {"{\"input_ids\": [1], \"image_grid_thw\": [[1, -2, 2]]}",
       "`image_grid_thw`[0]"},
      {"{\"input_ids\": [1], \"image_grid_thw\": [[1, 2, 2]]}", "only 0 of 1"},
      {"{\"input_ids\": [1], \"video_grid_thw\": [[1, 2, 2]]}", "only 0 of 1"},
      {"{\"input_ids\": [1], \"second_per_grid_ts\": [1]}",
       "each of the 0 grids"},
      {"{\"input_ids\": [1], \"video_grid_thw\": [[1, 2, 2]], "
       "\"second_per_grid_ts\": [0]}",
       "`second_per_grid_ts`[0] is not a number above 0"},
      {"{\"input_ids\": [1], \"mm_token_type_ids\": [0]}",
       "unknown key `mm_token_type_ids`"},
  };
  std::string output;
  for (const Case& bad : cases) {
    const absl::Status status =
        InspectText(std::string("{\"input_ids\": []}\n") + bad.line, &output);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.line;
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 2"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.complaint));
  }
}

using ::testing::HasSubstr;

absl::Status RunInspectText(const std::string& input, std::string* output) {
  std::istringstream in(input);
  std::ostringstream out;
  const absl::Status status = InspectText(**MakeTokenizer("bytes"), in, out);
  *output = out.str();
  return status;
}

TEST(InspectTextTest, WritesOneLineOfIdsPerText) {
  std::string output;
  ASSERT_TRUE(
      RunInspectText("{\"text\": \"A\\u00e4\"}\n\n{\"text\": \"\", \"x\": 1}",
                     &output)
          .ok());
  EXPECT_EQ(output, "{\"ids\":[65,195,164]}\n{\"ids\":[]}\n");
}

TEST(InspectTextTest, NamesBadLines) {
  std::string output;
  for (const char* bad : {"{\"text\": 1}", "{}", "[]", "\"text\"", "{", "x"}) {
    const absl::Status status = RunInspectText(
        std::string("{\"text\": \"a\"}\n\n") + bad + "\n", &output);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 3")) << bad;
    EXPECT_EQ(output, "{\"ids\":[97]}\n");
  }
}

class InspectConversationsTest : public RendererTest {
 protected:
  // Inspects lines of `input` with a chat template and a token a byte. Their
  // answers are in lines_.
  absl::Status InspectText(const std::string& chat_template,
                           const std::string& input, bool with_text = false) {
    ConversationOptions options;
    options.chat_template = ::testing::TempDir() + "/inspected.jinja";
    options.tokenizer = "bytes";
    options.with_text = with_text;
    std::ofstream(options.chat_template) << chat_template;
    std::istringstream in(input);
    std::stringstream out;
    const absl::Status status = InspectConversations(options, in, out);
    for (std::string line; std::getline(out, line);) {
      lines_.push_back(nlohmann::json::parse(line));
    }
    return status;
  }

  std::vector<nlohmann::json> lines_;
};

TEST_F(InspectConversationsTest, WritesTheWeightOfEachLabel) {
  const absl::Status status = InspectText(
      "{% for m in messages %}{{ m.content + ';' }}{% endfor %}",
      R"({"messages": [{"role": "assistant", "content": "ab", "weight": 0.5},)"
      R"( {"role": "user", "content": "c"},)"
      R"( {"role": "assistant", "content": "d"}]})"
      "\n"
      R"({"messages": [{"role": "assistant", "content": "ab"}]})");
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(lines_.size(), 2u);
  // "ab;c;d;": label i is id i + 1.
  EXPECT_EQ(lines_[0]["weights"], nlohmann::json({0.5, 0.5, 0, 0, 1, 1, 0}));
  EXPECT_EQ(lines_[1]["weights"], nlohmann::json({1, 1, 0}));
}

TEST_F(InspectConversationsTest, GoesOnAfterARefusal) {
  const absl::Status status = InspectText(
      "{% for m in messages %}{% if m.role == 'x' %}"
      "{{ raise_exception('no x') }}{% endif %}{{ m.content }}"
      "{{ '!' if loop.last else ';' }}{% endfor %}",
      R"({"messages": [{"role": "assistant", "content": "a"}]})"
      "\n"
      R"({"messages": [{"role": "x"}]})"
      "\n"
      // A template that writes an answer otherwise when others follow.
      R"({"messages": [{"role": "assistant", "content": "a"},)"
      R"( {"role": "user", "content": "b"}]})"
      "\n"
      R"({"messages": [{"role": "user", "content": "c"}]})",
      /*with_text=*/true);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("2 of 4 conversations are refused; see `error` in their "
                "lines. The first is 2: the chat template refuses the "
                "conversation: no x"));
  ASSERT_EQ(lines_.size(), 4u);
  EXPECT_EQ(lines_[0]["supervised"], nlohmann::json({"a!"}));
  EXPECT_EQ(lines_[0]["labels"], nlohmann::json({33, -100}));
  EXPECT_EQ(lines_[1].size(), 1u);
  EXPECT_THAT(lines_[1]["error"].get<std::string>(), HasSubstr("no x"));
  EXPECT_EQ(lines_[2]["text"], "a;b!");
  EXPECT_EQ(lines_[2]["ids"], nlohmann::json({97, 59, 98, 33}));
  EXPECT_FALSE(lines_[2].contains("labels"));
  EXPECT_FALSE(lines_[2].contains("supervised"));
  EXPECT_THAT(lines_[2]["error"].get<std::string>(),
              HasSubstr("otherwise when others follow"));
  EXPECT_EQ(lines_[3]["text"], "c!");
}

TEST(InspectLengthsTest, WritesOneArray) {
  const LognormalLengths lengths = {1024, 8192, 4096, 1.1};
  std::ostringstream out;
  ASSERT_TRUE(InspectLengths(lengths, 4, out).ok());
  EXPECT_EQ(out.str(), "[8192,3473,6564,8192]\n");
  std::ostringstream none;
  ASSERT_TRUE(InspectLengths(lengths, 0, none).ok());
  EXPECT_EQ(none.str(), "[]\n");
}

TEST(InspectLengthsTest, FaultsNameTheOption) {
  std::ostringstream out;
  const absl::Status status = InspectLengths({8, 4, 4, 1}, 4, out);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::StartsWith("--min is 8"));
  EXPECT_EQ(out.str(), "");
}

TEST(InspectLengthsTest, AFailingOutputEndsTheCommand) {
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  EXPECT_EQ(InspectLengths({1, 4, 4, 1}, ~uint64_t{0}, out).code(),
            absl::StatusCode::kUnavailable);
}

namespace fs = std::filesystem;

int RunLine(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"ballast-server", "make-corpus"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  CommandLine line("ballast-server", "test");
  AddMakeCorpus(&line);
  return line.Run(static_cast<int>(argv.size()), argv.data());
}

TEST(MakeCorpusTest, WritesShardsAndAConfiguration) {
  const std::string out = ::testing::TempDir() + "/make_corpus_test";
  fs::remove_all(out);
  EXPECT_EQ(RunLine({"--out", out, "--samples", "2", "--preset", "text",
                     "--seed", "18446744073709551615"}),
            0);
  EXPECT_TRUE(fs::exists(out + "/docs-000000.tar"));
  EXPECT_TRUE(fs::exists(out + "/ballast.yaml"));
}

TEST(MakeCorpusTest, BadLinesWriteNothing) {
  const std::string out = ::testing::TempDir() + "/make_corpus_bad";
  fs::remove_all(out);
  EXPECT_EQ(RunLine({"--out", out, "--samples", "0"}), 2);
  EXPECT_EQ(RunLine({"--out", out, "--samples", "-1"}), 2);
  EXPECT_EQ(RunLine({"--out", out, "--samples", "1", "--seed", "-1"}), 2);
  EXPECT_EQ(RunLine({"--out", out}), 2);
  EXPECT_EQ(RunLine({"--samples", "1"}), 2);
  EXPECT_EQ(RunLine({"--out", out, "--samples", "1", "--preset", "photos"}), 2);
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace ballast
