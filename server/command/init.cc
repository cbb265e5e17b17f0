#include "server/command/commands.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "server/command/init/decide.h"
#include "server/command/init/look.h"
#include "server/config/config_loader.h"
#include "server/files/file.h"
#include "server/model/image_family_config.h"
#include "server/model/profiles.h"

namespace ballast {

namespace {

namespace fs = std::filesystem;

struct InitOptions {
  LookOptions look;
  std::string out = "ballast.yaml";
};

absl::Status Write(const std::string& path, const std::string& text) {
  BALLAST_ASSIGN_OR_RETURN(File file, File::Create(path));
  return file.Write(text);
}

absl::Status Init(InitOptions options) {
  std::error_code error;
  if (fs::exists(options.out, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(options.out,
                     " exists and was kept; remove it, or name another file "
                     "with --out"));
  }
  const fs::path folder = fs::path(options.out).parent_path();
  if (!folder.empty()) options.look.config_folder = folder.string();
  BALLAST_ASSIGN_OR_RETURN(const Seen seen, LookAtFolder(options.look));
  BALLAST_ASSIGN_OR_RETURN(const Setup setup, DecideSetup(seen));
  std::vector<std::string> written;
  for (const OwnFile& file : setup.files) {
    const std::string path = (folder / file.name).string();
    if (fs::exists(path, error)) {
      return absl::AlreadyExistsError(absl::StrCat(
          path,
          " exists and was kept, and the configuration would name it; "
          "remove it, or write to another folder with --out"));
    }
    written.push_back(path);
  }
  // Before the check, which reads what the configuration names.
  for (size_t i = 0; i < written.size(); ++i) {
    BALLAST_RETURN_IF_ERROR(Write(written[i], setup.files[i].text));
  }
  // Checked as every command will read it.
  const auto parsed = ParseConfig(setup.yaml, options.out, folder.string());
  if (!parsed.ok()) {
    for (const std::string& path : written) fs::remove(path, error);
    return absl::InternalError(absl::StrCat(
        "the configuration for ", options.look.folder,
        " would be refused, so it was not written: ", parsed.status().message(),
        "\n", setup.yaml));
  }
  BALLAST_RETURN_IF_ERROR(Write(options.out, setup.yaml));
  std::cout << "found:\n";
  for (const std::string& line : setup.found) std::cout << "  " << line << "\n";
  if (!setup.unsure.empty()) {
    std::cout << "check:\n";
    for (const std::string& line : setup.unsure) {
      std::cout << "  " << line << "\n";
    }
  }
  for (const std::string& path : written) {
    std::cout << "wrote " << path
              << (absl::EndsWith(path, ".jsonl") ? "" : ", for you to complete")
              << "\n";
  }
  std::cout << "wrote " << options.out << "; next:\n"
            << (std::none_of(setup.files.begin(), setup.files.end(),
                             [](const OwnFile& file) {
                               return absl::EndsWith(file.name, "_recipe.py");
                             })
                    ? ""
                    : absl::StrCat("  ballast-server inspect recipe --config ",
                                   options.out, "\n"))
            << "  ballast-server index --config " << options.out << "\n"
            << "  ballast-server serve --config " << options.out << "\n";
  return absl::OkStatus();
}

// Words of the help about each kind of store: whose endpoint is the default,
// and which file holds credentials.
struct StoreHelp {
  const char* section;
  const char* endpoint;
  const char* file;
};
constexpr StoreHelp kStoreHelp[] = {
    {"s3", "Amazon's", "a file like ~/.aws/credentials"},
    {"gcs", "Google's", "the key file of a service account"},
    {"azure", "Azure's", "a file with a connection string"},
};

void AddStoreOptions(SeenStore* store, Command* command) {
  const StoreHelp* help = kStoreHelp;
  while (help->section != store->section) ++help;
  const std::string option = absl::StrCat("--", store->section, "-");
  const std::string key = absl::StrCat("storage.", store->section, ".");
  if (store->section == "azure") {
    command
        ->AddText(option + "account", &store->account,
                  key + "account (default: from the credentials)")
        .TypeName("NAME");
  }
  command
      ->AddText(option + "endpoint", &store->endpoint,
                absl::StrCat(key,
                             "endpoint, http://HOST:PORT or https://HOST:PORT "
                             "(default: ",
                             help->endpoint, ")"))
      .TypeName("URL");
  if (store->section == "s3") {
    command
        ->AddText(option + "region", &store->region,
                  key + "region (default: us-east-1)")
        .TypeName("NAME");
  }
  command
      ->AddText(option + "credentials", &store->credentials,
                absl::StrCat(key,
                             "credentials: environment, instance, anonymous, "
                             "or ",
                             help->file, " (default: environment)"))
      .TypeName("FILE");
  if (store->section == "s3") {
    command
        ->AddText(option + "ca", &store->ca,
                  key + "ca, the PEM file of the CAs of the endpoint")
        .TypeName("FILE");
  }
}

}  // namespace

void AddInit(CommandLine* line) {
  auto options = std::make_shared<InitOptions>();
  Command* command = line->AddCommand(
      line->program(), "init",
      R"(Looks at a folder, or at a prefix of an object store, and writes a configuration
for it that runs as it is, with a comment on each line: sources of WebDataset
tars, JSON lines, Parquet files and folders of Energon, the model's profile and
tokenizer, a rank for each GPU. Prints what it found and what is unclear.
For records that it does not know, it writes a recipe to complete
(docs/recipes.md); likewise for a model (docs/unknown_model.md).
Reads the first samples of each source only; `ballast-server index` reads all.
Never overwrites a file.)",
      R"(  ballast-server init data
  ballast-server init data --model-dir Qwen2.5-VL-7B-Instruct
  ballast-server init /mnt/data --out jobs/docs.yaml
  ballast-server init s3://bucket/FineVision --s3-region eu-central-1
  ballast-server init s3://bucket/set --s3-endpoint https://store.example:9000
  ballast-server init gs://bucket/set --gcs-credentials key.json
  ballast-server init abfs://container/set --azure-account mine)",
      [options] { return Init(*options); });
  command
      ->AddText("DIR", &options->look.folder,
                "the folder of the data, or an address: s3://BUCKET/PREFIX, "
                "gs://…, abfs://…")
      .Required();
  command
      ->AddText("--out", &options->out,
                "the configuration to write; paths in it are relative to its "
                "folder")
      .TypeName("FILE")
      .ShowDefault();
  command
      ->AddText("--model-dir", &options->look.model_folder,
                "folder of the Hugging Face model to train: config.json, "
                "preprocessor_config.json, tokenizer.json (default: DIR, if "
                "it has them)")
      .TypeName("DIR");
  for (SeenStore& store : options->look.stores)
    AddStoreOptions(&store, command);
}

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
  auto rules = std::make_shared<std::string>();
  Command* command = line->AddCommand(
      inspect, "family",
      R"(Prints the image family of a released model, its mean and its deviation as YAML.
Paste it below `model:` in a configuration to start your own family;
`inspect image --config` shows what that makes of images.)",
      R"(  ballast-server inspect family --model internvl3)",
      [name, rules]() -> absl::Status {
        const std::string model = UnderRules(*name, *rules);
        std::cout << NormYaml(model) << FamilyYaml(*FindImageFamily(model));
        return Flush(std::cout);
      });
  command->AddText("--model", name.get(), "a family of docs/families.md")
      .OneOf(ProfileNames())
      .Required()
      .TypeName("MODEL");
  AddRules(command, rules.get());
}

}  // namespace ballast
