#include "server/command/init.h"

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/command/init/decide.h"
#include "server/command/init/look.h"
#include "server/config/config_loader.h"
#include "server/corpus/file.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string folder;
  std::string out = "ballast.yaml";
  std::string model_folder;
};

absl::Status Write(const std::string& path, const std::string& text) {
  BALLAST_ASSIGN_OR_RETURN(File file, File::Create(path));
  return file.Write(text);
}

absl::Status Init(const Options& options) {
  if (absl::StrContains(options.folder, "://")) {
    return absl::UnimplementedError(absl::StrCat(
        options.folder,
        ": found an address; wanted a folder of this machine or of a file "
        "system that it mounts. Copy some of its files into a folder, run "
        "`ballast-server init` on that, and give the sources the address as "
        "their path (docs/storage.md)"));
  }
  std::error_code error;
  if (fs::exists(options.out, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(options.out,
                     " exists and was kept; remove it, or name another file "
                     "with --out"));
  }
  const fs::path folder = fs::path(options.out).parent_path();
  BALLAST_ASSIGN_OR_RETURN(
      const Seen seen,
      LookAtFolder(options.folder, folder.empty() ? "." : folder,
                   options.model_folder));
  BALLAST_ASSIGN_OR_RETURN(const Setup setup, DecideSetup(seen));
  // Checked as every command will read it.
  const auto parsed = ParseConfig(setup.yaml, options.out, folder.string());
  if (!parsed.ok()) {
    return absl::InternalError(absl::StrCat(
        "the configuration for ", options.folder,
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
  std::cout << "wrote " << options.out << "; next:\n"
            << "  ballast-server index --config " << options.out << "\n"
            << "  ballast-server serve --config " << options.out << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddInit(CommandLine* line) {
  auto options = std::make_shared<Options>();
  Command* command = line->AddCommand(
      line->program(), "init",
      R"(Looks at a folder and writes a configuration for it that runs as it is, with
a comment on each line: sources of WebDataset tars, JSON lines, Parquet files
and folders of Energon, the model's profile and tokenizer, a rank for each GPU.
Prints what it found and what it could not tell. Reads the first samples of each
source only; `ballast-server index` reads all. Never overwrites a file.)",
      R"(  ballast-server init data
  ballast-server init data --model-dir Qwen2.5-VL-7B-Instruct
  ballast-server init /mnt/data --out jobs/docs.yaml)",
      [options] { return Init(*options); });
  command->AddText("DIR", &options->folder, "the folder of the data")
      .Required();
  command
      ->AddText("--out", &options->out,
                "the configuration to write; paths in it are relative to its "
                "folder")
      .TypeName("FILE")
      .ShowDefault();
  command
      ->AddText("--model-dir", &options->model_folder,
                "folder of the Hugging Face model to train: config.json, "
                "preprocessor_config.json, tokenizer.json (default: DIR, if "
                "they lie there)")
      .TypeName("DIR");
}

}  // namespace ballast
