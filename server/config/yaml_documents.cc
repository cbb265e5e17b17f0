#include "server/config/yaml_documents.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>

namespace ballast {
namespace {

// Receives a document's events and records its position.
class StartHandler : public YAML::EventHandler {
 public:
  KeyLocation start() const { return start_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    start_ = {mark.line + 1, mark.column + 1};
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  KeyLocation start_;
};

}  // namespace

std::optional<KeyLocation> FindSecondDocument(const std::string& text) {
  // YAML::LoadAll never ends on a text that starts with a comma, which yaml-cpp
  // reads as an endless sequence of empty documents.
  StartHandler handler;
  bool has_first = false;
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    has_first = parser.HandleNextDocument(handler);
    if (!has_first || !parser.HandleNextDocument(handler)) return std::nullopt;
    return handler.start();
  } catch (const YAML::Exception& e) {
    if (!has_first) return std::nullopt;
    return KeyLocation{e.mark.line + 1, e.mark.column + 1};
  }
}

}  // namespace ballast
