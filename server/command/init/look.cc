#include "server/command/init/look.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "server/command/init/energon_parts.h"
#include "server/command/init/first_samples.h"
#include "server/command/init/name_groups.h"
#include "server/corpus/file.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr int kMostFolders = 6;
constexpr uint64_t kMostEntries = 200000;
constexpr size_t kMostRoots = 64;
constexpr size_t kMostModelFile = 64 << 20;
constexpr char kGpus[] = "/proc/driver/nvidia/gpus";

// The format of a file of this extension, if a source may be made of it.
std::optional<SeenFiles::Format> FormatOf(const fs::path& file) {
  const std::string extension = file.extension().string();
  if (extension == ".tar") return SeenFiles::Format::kWebDataset;
  if (extension == ".jsonl" || extension == ".ndjson") {
    return SeenFiles::Format::kJsonl;
  }
  if (extension == ".parquet") return SeenFiles::Format::kParquet;
  return std::nullopt;
}

// `path` as the configuration in `config_folder` shall name it.
std::string Named(const fs::path& path, const fs::path& config_folder) {
  const fs::path relative = path.lexically_relative(config_folder);
  if (relative.empty() || *relative.begin() == "..") return path.string();
  return relative.string();
}

class FolderLooker {
 public:
  FolderLooker(fs::path folder, fs::path config_folder, Seen* seen)
      : folder_(std::move(folder)),
        config_folder_(std::move(config_folder)),
        seen_(seen) {}

  absl::Status Look() {
    BALLAST_RETURN_IF_ERROR(List());
    for (const fs::path& folder : energon_) AddEnergon(folder);
    for (auto& [key, names] : found_) {
      if (key.second == Format::kWebDataset && IsOfEnergon(key.first)) continue;
      for (const NameGroup& group : GroupNames(std::move(names))) {
        AddFiles(key.first, key.second, group);
      }
    }
    return absl::OkStatus();
  }

 private:
  using Format = SeenFiles::Format;

  absl::Status List() {
    std::error_code error;
    fs::recursive_directory_iterator entry(folder_, error);
    if (error) return FileError(error.value(), "list", folder_.string());
    uint64_t entries = 0;
    for (; !error && entry != fs::recursive_directory_iterator();
         entry.increment(error)) {
      if (++entries > kMostEntries) {
        seen_->cut = true;
        break;
      }
      AddEntry(&entry);
    }
    if (error) return FileError(error.value(), "list", folder_.string());
    std::sort(folders_.begin(), folders_.end());
    return absl::OkStatus();
  }

  void AddEntry(fs::recursive_directory_iterator* entry) {
    const fs::path& path = (*entry)->path();
    std::error_code error;
    if (absl::StartsWith(path.filename().string(), ".")) {
      entry->disable_recursion_pending();
      if (path.filename() == ".nv-meta") {
        energon_.push_back(path.parent_path());
      }
      return;
    }
    if ((*entry)->is_directory(error)) {
      if (entry->depth() + 1 == kMostFolders) {
        seen_->cut = true;
        entry->disable_recursion_pending();
      }
      if (entry->depth() == 0 && folders_.size() < kMostRoots) {
        folders_.push_back(path.string());
      }
      return;
    }
    if (!(*entry)->is_regular_file(error)) return;
    const std::optional<Format> format = FormatOf(path);
    if (format.has_value()) {
      found_[{path.parent_path(), *format}].push_back(path.filename().string());
    } else if (path.extension() == ".json") {
      LookAtJson(path);
    }
  }

  // Takes an array of conversations, as LLaVA's files are. Other JSON files
  // describe something.
  void LookAtJson(const fs::path& path) {
    constexpr uint64_t kHead = 65536;
    const absl::StatusOr<File> file = File::Open(path.string());
    if (!file.ok()) return;
    const absl::StatusOr<std::string> head =
        file->ReadAt(0, std::min(kHead, file->stamp().size));
    if (!head.ok()) return;
    const size_t first = head->find_first_not_of(" \t\r\n");
    if (first == std::string::npos || (*head)[first] != '[') return;
    if (!absl::StrContains(*head, "\"conversations\"") &&
        !absl::StrContains(*head, "\"messages\"")) {
      return;
    }
    found_[{path.parent_path(), Format::kJsonl}].push_back(
        path.filename().string());
  }

  void Other(const fs::path& path, std::string reason) {
    seen_->others.push_back({path.string(), std::move(reason)});
  }

  void AddFiles(const fs::path& parent, Format format, const NameGroup& group) {
    SeenFiles files;
    files.format = format;
    files.files = group.names.size();
    std::string folder = Named(parent, config_folder_);
    bool has_pattern = EscapePattern(&folder);
    std::vector<std::string> paths;
    for (std::string name : group.names) {
      paths.push_back((parent / name).string());
      has_pattern = has_pattern && EscapePattern(&name);
    }
    if (!has_pattern) {
      Other(paths.front(),
            "braces and commas in names cannot be written in "
            "sources[].path; rename the file or its folder");
      return;
    }
    files.path = folder == "." ? group.pattern
                               : absl::StrCat(folder, "/", group.pattern);
    for (const std::string& path : paths) {
      std::error_code error;
      const uint64_t bytes = fs::file_size(path, error);
      if (!error) files.bytes += bytes;
    }
    std::vector<std::string> roots = {parent.string(), folder_.string()};
    roots.insert(roots.end(), folders_.begin(), folders_.end());
    LookAtFirstSamples(paths, roots, &files);
    if (files.looked_at == 0 || files.bad > files.looked_at / 2) {
      Other(files.path,
            files.first_fault.empty() ? "no samples" : files.first_fault);
      return;
    }
    if (!files.media_root.empty()) {
      files.media_root = Named(files.media_root, config_folder_);
    }
    seen_->files.push_back(std::move(files));
  }

  // Whether tars of this folder are shards of an Energon folder above it.
  bool IsOfEnergon(const fs::path& folder) const {
    return std::any_of(energon_.begin(), energon_.end(),
                       [&folder](const fs::path& above) {
                         return std::mismatch(above.begin(), above.end(),
                                              folder.begin(), folder.end())
                                    .first == above.end();
                       });
  }

  void AddEnergon(const fs::path& folder) {
    absl::StatusOr<std::vector<SeenFiles>> parts =
        LookAtEnergon(folder.string(), Named(folder, config_folder_));
    if (!parts.ok()) {
      Other(folder, std::string(parts.status().message()));
      return;
    }
    for (SeenFiles& files : *parts) seen_->files.push_back(std::move(files));
  }

  const fs::path folder_;
  const fs::path config_folder_;
  Seen* const seen_;
  std::vector<std::string> folders_;  // directly in folder_
  std::vector<fs::path> energon_;     // that hold .nv-meta
  std::map<std::pair<fs::path, Format>, std::vector<std::string>> found_;
};

std::string TextOf(const fs::path& file) {
  return ReadSmallFile(file.string(), kMostModelFile).value_or("");
}

SeenModel LookAtModel(const fs::path& folder, const fs::path& config_folder) {
  SeenModel model;
  model.config = TextOf(folder / "config.json");
  model.preprocessor = TextOf(folder / "preprocessor_config.json");
  if (model.config.empty() && model.preprocessor.empty()) return model;
  model.folder = Named(folder, config_folder);
  std::error_code error;
  model.has_tokenizer = fs::exists(folder / "tokenizer.json", error);
  for (const char* name :
       {"chat_template.jinja", "chat_template.json", "tokenizer_config.json"}) {
    model.chat_template += TextOf(folder / name);
  }
  return model;
}

uint64_t CountGpus() {
  std::error_code error;
  uint64_t devices = 0;
  for (fs::directory_iterator entry(kGpus, error), end; !error && entry != end;
       entry.increment(error)) {
    ++devices;
  }
  return VisibleGpus(devices, std::getenv("CUDA_VISIBLE_DEVICES"));
}

}  // namespace

uint64_t VisibleGpus(uint64_t devices, const char* cuda_visible_devices) {
  if (cuda_visible_devices == nullptr) return devices;
  const std::vector<std::string> named =
      absl::StrSplit(cuda_visible_devices, ',', absl::SkipWhitespace());
  uint64_t visible = 0;
  for (const std::string& name : named) {
    if (name == "-1") break;  // as CUDA: what follows is not visible
    ++visible;
  }
  return std::min(visible, devices);
}

absl::StatusOr<Seen> LookAtFolder(const std::string& folder,
                                  const std::string& config_folder,
                                  const std::string& model_folder) {
  std::error_code error;
  const fs::path root = fs::absolute(folder).lexically_normal();
  const fs::path config = fs::absolute(config_folder).lexically_normal();
  if (!fs::is_directory(root, error)) {
    if (error) return FileError(error.value(), "look at", folder);
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": found a file; wanted the folder of a dataset"));
  }
  // "data/" and "data" are the same folder.
  const auto plain = [](const fs::path& path) {
    return path.has_filename() ? path : path.parent_path();
  };
  Seen seen;
  seen.folder = folder;
  BALLAST_RETURN_IF_ERROR(
      FolderLooker(plain(root), plain(config), &seen).Look());
  const fs::path model =
      model_folder.empty()
          ? plain(root)
          : plain(fs::absolute(model_folder).lexically_normal());
  seen.model = LookAtModel(model, plain(config));
  if (model_folder.empty() && seen.model.preprocessor.empty() &&
      !absl::StrContains(seen.model.config, "\"model_type\"")) {
    seen.model = SeenModel();  // another program's config.json
  }
  if (!model_folder.empty() && seen.model.folder.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "--model-dir ", model_folder,
        ": found neither config.json nor preprocessor_config.json; wanted the "
        "folder of a Hugging Face model, such as a snapshot below "
        "~/.cache/huggingface/hub"));
  }
  seen.gpus = CountGpus();
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) {
    seen.memory_bytes = static_cast<uint64_t>(pages) * page;
  }
  return seen;
}

}  // namespace ballast
