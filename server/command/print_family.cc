#include "server/command/print_family.h"

#include <iostream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/config/image_family_config.h"
#include "server/config/profiles.h"

namespace ballast {
namespace {

// A family of one's own states mean and deviation. "": an encoder, without
// them.
std::string NormYaml(const std::string& name) {
  const v1::ModelProfile& profile = *FindProfile(name);
  if (IsEncoder(profile)) return "";
  const auto list = [](const auto& values) {
    return absl::StrFormat("[%.9g, %.9g, %.9g]", values[0], values[1],
                           values[2]);
  };
  return absl::StrCat("mean: ", list(profile.mean()),
                      "\nstd: ", list(profile.std()), "\n");
}

}  // namespace

void AddInspectFamily(CommandLine* line, Command* inspect) {
  auto name = std::make_shared<std::string>();
  Command* command = line->AddCommand(
      inspect, "family",
      R"(Prints the image family of a released model, its mean and its deviation as YAML.
It can stand below `model:` in a configuration, as the start of your own family;
`inspect image --config` shows what that makes of images.)",
      R"(  ballast-server inspect family --model internvl3)",
      [name]() -> absl::Status {
        std::cout << NormYaml(*name) << FamilyYaml(*FindImageFamily(*name))
                  << std::flush;
        if (std::cout) return absl::OkStatus();
        return absl::UnavailableError("cannot write to standard output");
      });
  command->AddText("--model", name.get(), "a family of docs/families.md")
      .OneOf(ProfileNames())
      .Required()
      .TypeName("MODEL");
}

}  // namespace ballast
