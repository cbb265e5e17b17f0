// Compares texts and what is supervised of them with transformers', as written
// by make_vectors.py.
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/small_file.h"
#include "server/corpus/data_fault.h"
#include "server/text/template/rendered_text.h"
#include "tests/server/text/template/renderer_fixture.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

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
