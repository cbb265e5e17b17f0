#ifndef BALLAST_TESTS_SERVER_TEXT_TEMPLATE_RENDERER_FIXTURE_H_
#define BALLAST_TESTS_SERVER_TEXT_TEMPLATE_RENDERER_FIXTURE_H_

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/text/template/template_renderer.h"

namespace ballast {

// Skips where no python3 of PATH has jinja2.
class RendererTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static const absl::Status trial =
        TemplateRenderer::Create({.text = "x"}, {}).status();
    if (absl::IsFailedPrecondition(trial)) GTEST_SKIP() << trial.message();
    ASSERT_TRUE(trial.ok()) << trial;
  }

  static std::unique_ptr<TemplateRenderer> Make(
      const std::string& text, const TemplateRenderer::Options& options = {}) {
    auto renderer = TemplateRenderer::Create({.text = text}, options);
    EXPECT_TRUE(renderer.ok()) << renderer.status();
    return *std::move(renderer);
  }
};

inline constexpr char kOneQuestion[] =
    R"({"messages": [{"role": "user", "content": "Why?"}]})";

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_TEXT_TEMPLATE_RENDERER_FIXTURE_H_
