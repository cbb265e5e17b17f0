#include "server/command/print_family.h"

#include <iostream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/config/image_family_config.h"
#include "server/image_plan/image_family.h"

namespace ballast {

void AddInspectFamily(CommandLine* line, Command* inspect) {
  auto name = std::make_shared<std::string>();
  Command* command = line->AddCommand(
      inspect, "family",
      R"(Prints the image family of a released model as YAML.
It can stand below `model:` in a configuration, as the start of your own family;
`inspect image --config` shows what that makes of images.)",
      R"(  ballast-server inspect family --model internvl3)",
      [name]() -> absl::Status {
        std::cout << FamilyYaml(*FindImageFamily(*name)) << std::flush;
        if (std::cout) return absl::OkStatus();
        return absl::UnavailableError("cannot write to standard output");
      });
  command->AddText("--model", name.get(), "a family of docs/families.md")
      .OneOf(ImageFamilyNames())
      .Required()
      .TypeName("MODEL");
}

}  // namespace ballast
