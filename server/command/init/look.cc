#include "server/command/init/look.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"
#include "common/clock.h"
#include "common/machine.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "common/utf8.h"
#include "proto/config.pb.h"
#include "proto/schedule/split.h"
#include "server/command/init/choose_form.h"
#include "server/command/init/decide.h"
#include "server/command/init/first_samples.h"
#include "server/command/init/own_files.h"
#include "server/data/energon/energon_folder.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/jsonl/element_reader.h"
#include "server/data/jsonl/media_root.h"
#include "server/data/jsonl/pair_json.h"
#include "server/data/parquet/unpack.h"
#include "server/data/source_files.h"
#include "server/data/unpack_lines.h"
#include "server/files/file.h"
#include "server/files/hub_store.h"
#include "server/files/path_pattern.h"
#include "server/files/storage.h"
#include "server/recipe/turns_json.h"
#include "server/sample/data_fault.h"
#include "server/text/chat_writer.h"
#include "server/text/conversation.h"

namespace ballast {

namespace {

constexpr v1::Split kSplits[] = {v1::SPLIT_TRAIN, v1::SPLIT_VALID,
                                 v1::SPLIT_TEST};

v1::Source GetSource(const std::string& folder, v1::Split split, bool crude) {
  v1::Source source;
  source.set_format(v1::Source::FORMAT_ENERGON);
  source.set_path(folder);
  source.set_split(split);
  if (crude) {
    source.mutable_energon()->set_crude(v1::Source::Energon::CRUDE_WEBDATASET);
  }
  return source;
}

SeenFiles GetFiles(const EnergonFolder& folder, v1::Split split,
                   DataTree* tree) {
  SeenFiles files;
  files.format = SeenFiles::Format::kEnergon;
  files.split = std::string(SplitName(split));
  files.files = folder.shards.size();
  std::vector<std::string> paths;
  for (const EnergonShard& shard : folder.shards) {
    files.samples += shard.count;
    paths.push_back(folder.ShardPath(shard));
    const auto stamp = Storage::OfProcess().Stamp(paths.back());
    if (stamp.ok()) files.bytes += stamp->size;
  }
  // Sizes alone: which parts of a sample are its text, dataset.yaml says, and
  // how many samples there are, .info does.
  SeenFiles sizes = files;
  LookAtFirstSamples(paths, {}, {}, tree, &sizes);
  files.looked_at = sizes.looked_at;
  files.for_own_template = sizes.for_own_template;
  files.first_for_own_template = sizes.first_for_own_template;
  files.media = sizes.media;
  uint64_t& most_images = files.media.most[MediumKind::kImage];
  most_images = std::max<uint64_t>(most_images, 1);
  files.most_text = sizes.most_text;
  return files;
}

}  // namespace

absl::StatusOr<std::vector<SeenFiles>> LookAtEnergon(const std::string& folder,
                                                     const std::string& path,
                                                     DataTree* tree) {
  std::vector<SeenFiles> found;
  absl::Status none;
  for (const v1::Split split : kSplits) {
    bool crude = false;
    absl::StatusOr<EnergonFolder> opened =
        OpenEnergonFolder(GetSource(folder, split, crude), "");
    if (absl::IsUnimplemented(opened.status())) {
      crude = true;
      const absl::StatusOr<EnergonFolder> again =
          OpenEnergonFolder(GetSource(folder, split, crude), "");
      if (again.ok()) opened = *again;
    }
    if (absl::IsNotFound(opened.status())) {
      // A folder need not have every part.
      none.Update(opened.status());
      continue;
    }
    if (!opened.ok()) return opened.status();
    SeenFiles files = GetFiles(*opened, split, tree);
    files.path = path;
    files.crude = crude;
    found.push_back(std::move(files));
  }
  if (found.empty()) return none;
  return found;
}

namespace {

constexpr char kNumber[] = "[0-9]*";

// `name` with every number replaced by a glob. The extension stays.
std::string WithoutNumbers(absl::string_view name) {
  const size_t dot = name.rfind('.');
  std::string pattern;
  for (size_t i = 0; i < name.size(); ++i) {
    if (absl::ascii_isdigit(name[i]) && i < dot) {
      while (i + 1 < name.size() && absl::ascii_isdigit(name[i + 1])) ++i;
      pattern += kNumber;
    } else {
      std::string one(1, name[i]);
      EscapePattern(&one);
      pattern += one;
    }
  }
  return pattern;
}

}  // namespace

bool EscapePattern(std::string* name) {
  std::string escaped;
  for (const char c : *name) {
    if (c == '{' || c == '}' || c == ',') return false;
    if (c == '*' || c == '?' || c == '[' || c == ']' || c == '\\') {
      escaped += '\\';
    }
    escaped += c;
  }
  *name = std::move(escaped);
  return true;
}

std::vector<NameGroup> GroupNames(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  std::map<std::string, std::vector<std::string>> by_pattern;
  for (const std::string& name : names) {
    by_pattern[WithoutNumbers(name)].push_back(name);
  }
  std::vector<NameGroup> groups;
  for (auto& [pattern, members] : by_pattern) {
    NameGroup group{pattern, std::move(members)};
    const auto matched = [&pattern = pattern](const std::string& name) {
      return fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0;
    };
    const bool exact =
        static_cast<size_t>(std::count_if(names.begin(), names.end(),
                                          matched)) == group.names.size();
    if (group.names.size() == 1 || !exact) {
      std::vector<std::string> escaped = group.names;
      for (std::string& name : escaped) EscapePattern(&name);
      group.pattern = escaped.size() == 1
                          ? escaped.front()
                          : absl::StrCat("{", absl::StrJoin(escaped, ","), "}");
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

namespace {

namespace fs = std::filesystem;

// JSON files of a store whose beginning is read.
constexpr uint64_t kMaxJsonOfStore = 100;
constexpr size_t kMaxModelFile = 64 << 20;
constexpr char kDatasetInfo[] = "dataset_info.json";
// Bytes of lines that `init` writes of images with a text each.
constexpr size_t kMaxPairs = 256 << 20;
constexpr char kGpus[] = "/proc/driver/nvidia/gpus";
constexpr char kIsUnpacked[] = "its lines are unpacked next to it";
constexpr char kNoOffsets[] =
    "samples are read at their offsets, and a compressed stream has none; "
    "unpack it, or write Parquet with compression zstd";

// The format of a file of this extension, if a source may be made of it.
std::optional<SeenFiles::Format> GetFormat(const fs::path& file) {
  const std::string extension = file.extension().string();
  if (extension == ".tar") return SeenFiles::Format::kWebDataset;
  if (extension == ".jsonl" || extension == ".ndjson") {
    return SeenFiles::Format::kJsonl;
  }
  if (extension == ".parquet" || extension == ".arrow") {
    return SeenFiles::Format::kParquet;
  }
  if (extension == ".csv" || extension == ".tsv")
    return SeenFiles::Format::kCsv;
  // Next to a .bin, which may hold anything. NAME.tar.idx is Energon's.
  if (extension == ".idx" && file.stem().extension() != ".tar") {
    return SeenFiles::Format::kMegatron;
  }
  return std::nullopt;
}

// `path`, absolute or a URL, as the configuration in `config_folder` shall name
// it.
std::string Named(const std::string& path, const fs::path& config_folder) {
  if (IsStoreUrl(path)) return path;
  const fs::path relative = fs::path(path).lexically_relative(config_folder);
  if (relative.empty() || *relative.begin() == "..") return path;
  return relative.string();
}

// Makes sources of the files in a tree.
class TreeLooker {
 public:
  TreeLooker(DataTree tree, fs::path config_folder, Seen* seen)
      : tree_(std::move(tree)),
        config_folder_(std::move(config_folder)),
        seen_(seen) {}

  void Look() {
    seen_->cut = tree_.cut();
    for (const DataTree::File& file : tree_.files()) {
      if (file.name == kDatasetInfo) ReadForms(file);
    }
    for (const DataTree::File& file : tree_.files()) AddFile(file);
    for (const auto& [folder, names] : texts_) AddPairs(folder, names);
    for (const std::string& folder : tree_.energon()) AddEnergon(folder);
    for (const auto& [key, files] : found_) {
      const auto& [folder, format] = key;
      if (format == Format::kWebDataset && IsOfEnergon(folder)) continue;
      std::vector<std::string> names;
      for (const auto& [name, bytes] : files) names.push_back(name);
      for (const NameGroup& group : GroupNames(std::move(names))) {
        AddFiles(folder, format, group, files);
      }
    }
    for (auto& [key, names] : compressed_) {
      const auto& [folder, reason] = key;
      std::sort(names.begin(), names.end());
      Other(absl::StrCat(folder, "/", names.front()),
            absl::StrCat("compressed, as ", names.size(),
                         names.size() == 1 ? " file" : " files",
                         " of its folder: ", reason));
    }
    if (seen_->in_store) LookForModel();
    SayOthers();
  }

 private:
  using Format = SeenFiles::Format;
  using Sizes = std::map<std::string, uint64_t>;  // by name

  void AddFile(const DataTree::File& file) {
    // docs.jsonl of docs.jsonl.zst.
    const fs::path name =
        IsPacked(file.name) ? fs::path(file.name).stem() : fs::path(file.name);
    const bool is_packed = name != file.name;
    if (is_packed &&
        tree_.HasFile(absl::StrCat(file.folder, "/", name.string())) == true) {
      compressed_[{file.folder, kIsUnpacked}].push_back(file.name);
      return;
    }
    std::optional<Format> format;
    if (!DataTree::IsCompressed(name.string())) format = GetFormat(name);
    const bool is_json = name.extension() == ".json";
    if (file.name == kDatasetInfo) return;
    if (is_json &&
        (given_.contains(file.path()) || HoldsConversations(file.path()))) {
      format = Format::kJsonl;
    }
    if ((name.extension() == ".txt" || name.extension() == ".caption") &&
        !seen_->in_store) {
      if (IsTable(file.path())) {
        found_[{file.folder, Format::kCsv}][file.name] = file.bytes;
      } else {
        texts_[file.folder].push_back(file.name);
      }
      return;
    }
    if (is_json && !format.has_value()) {
      descriptions_.push_back(file);
    }
    if (format != Format::kJsonl && DataTree::IsCompressed(file.name)) {
      compressed_[{file.folder, kNoOffsets}].push_back(file.name);
      return;
    }
    if (format.has_value()) {
      found_[{file.folder, *format}][file.name] = file.bytes;
    }
  }

  // Whether a text is a table: its second line begins with the name of an
  // image, as in Flickr8k's captions.txt.
  static bool IsTable(const std::string& path) {
    constexpr uint64_t kHead = 4096;
    const absl::StatusOr<FirstLines> lines = OpenFirstLines(path);
    if (!lines.ok()) return false;
    const absl::StatusOr<std::string> head =
        lines->file.ReadAt(0, std::min(kHead, lines->file.stamp().size));
    if (!head.ok()) return false;
    const std::vector<absl::string_view> rows =
        absl::StrSplit(*head, absl::MaxSplits('\n', 2));
    return rows.size() > 1 && rows[0].find_first_of(",\t") != rows[0].npos &&
           NamesMedia(rows[1].substr(0, rows[1].find_first_of(",\t")));
  }

  // JSON that holds no list of records, where nothing else is a source: the
  // keys that it has, and what joins the best known of these to records.
  void SayDescriptions() {
    constexpr size_t kMost = 4;
    for (size_t i = 0; i < std::min(kMost, descriptions_.size()); ++i) {
      const DataTree::File& file = descriptions_[i];
      const std::string stem = file.name.substr(0, file.name.rfind('.'));
      for (const char* ending : {".jpg", ".jpeg", ".png", ".webp"}) {
        if (tree_.HasFile(absl::StrCat(file.folder, "/", stem, ending)) !=
            true) {
          continue;
        }
        return Other(
            file.path(),
            absl::StrCat("images with a JSON each; write tars of them: "
                         "`tar --sort=name -cf ",
                         tree_.root(), "/data.tar -C ", file.folder,
                         " .`, and run init again"));
      }
      const auto text = ReadSmallFile(file.path(), kMaxModelFile);
      if (!text.ok()) {
        Other(file.path(), std::string(text.status().message()));
        continue;
      }
      const nlohmann::json json =
          nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
      if (!json.is_object()) continue;
      std::vector<std::string> keys;
      for (const auto& entry : json.items()) {
        if (keys.size() == 8) break;
        keys.push_back(Printable(entry.key()));
      }
      const bool is_coco = json.contains("images") &&
                           json.contains("annotations") &&
                           absl::StrContains(*text, "\"caption\"");
      Other(file.path(),
            absl::StrCat(
                "an object of ", absl::StrJoin(keys, ", "),
                ", and no list of records; write one line of JSON a sample, ",
                is_coco
                    ? absl::StrCat(
                          "for captions of COCO by `python3 -c 'import json; d "
                          "= json.load(open(\"",
                          file.path(),
                          "\")); n = {i[\"id\"]: i[\"file_name\"] for i in "
                          "d[\"images\"]}; "
                          "[print(json.dumps({\"image\": n[a[\"image_id\"]], "
                          "\"text\": a[\"caption\"]})) for a in "
                          "d[\"annotations\"]]' > /tmp/captions.jsonl && mv "
                          "/tmp/captions.jsonl ",
                          file.folder, "`")
                    : std::string("such as {\"image\": \"a.jpg\", "
                                  "\"question\": …, \"answer\": …}"),
                ", and run init again"));
    }
  }

  // Whether a JSON file holds samples: an array, as LLaVA's files are, or
  // lines. Others describe something.
  bool HoldsConversations(const std::string& path) {
    constexpr uint64_t kHead = 65536;
    if (seen_->in_store && json_files_++ == kMaxJsonOfStore) {
      Other(path, absl::StrCat("it and other files .json were not looked at, "
                               "after ",
                               kMaxJsonOfStore,
                               "; add those that hold conversations as sources "
                               "of format: jsonl"));
    }
    if (seen_->in_store && json_files_ > kMaxJsonOfStore) return false;
    const absl::StatusOr<FirstLines> first_lines = OpenFirstLines(path);
    if (!first_lines.ok()) return false;
    const bool is_array = IsJsonArray(first_lines->file).value_or(false);
    const File& file = first_lines->file;
    const absl::StatusOr<std::string> head =
        file.ReadAt(0, std::min(kHead, file.stamp().size));
    if (!head.ok()) return false;
    if (is_array) {
      // Other arrays are looked at, and left out where no form fits.
      constexpr absl::string_view kKnown[] = {"conversations", "messages",
                                              "texts", "text_list", "rejected"};
      if (std::none_of(
              std::begin(kKnown), std::end(kKnown), [&](absl::string_view key) {
                return absl::StrContains(*head, absl::StrCat("\"", key, "\""));
              })) {
        others_.insert(path);
      }
      return true;
    }
    const size_t first = head->find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return false;
    if ((*head)[first] == '{') {
      const absl::string_view left = absl::string_view(*head).substr(first);
      const absl::string_view line = left.substr(0, left.find('\n'));
      const absl::StatusOr<JsonSample> sample = ParseJsonSample(line);
      if (sample.ok() && sample->text_format == RawSample::TextFormat::kPlain) {
        return true;
      }
      std::string text(line);
      if (SplitPair(/*images=*/0, &text).value_or(false)) return true;
      const absl::Status turns = ParseConversation(line).status();
      return turns.ok() || GetBadKind(turns) == kForOwnTemplate;
    }
    return false;
  }

  // What is there in a format that is not read, with the way out.
  void SayOthers() {
    struct Form {
      const char* ending;
      const char* what;  // $0: the first, $1: its folder
    };
    constexpr Form kForms[] = {
        {".zip",
         "a zip archive: samples are read at their places in files, and a "
         "server unpacks none; unpack it, as by `unzip -q $0 -d $1`, and run "
         "init again"},
        {".mds",
         "a shard of MosaicML's streaming (MDS), which is not read; write "
         "Parquet: `python3 -c 'import datasets, streaming; "
         "datasets.Dataset.from_generator(lambda: (dict(r) for r in "
         "streaming.StreamingDataset(local=\"$1\", batch_size=1)))"
         ".to_parquet(\"$1/data.parquet\")'`"},
        {".lance",
         "a table of Lance, which is not read; write Parquet: `python3 -c "
         "'import lance, pyarrow.parquet as pq; "
         "pq.write_table(lance.dataset(\"$0\").to_table(), "
         "\"$1/data.parquet\")'`"},
        {".tfrecord",
         "records of TensorFlow, which are not read: their fields are any "
         "program's own; write tars of them, as with webdataset's TarWriter"},
        {".tfrecords",
         "records of TensorFlow, which are not read: their fields are any "
         "program's own; write tars of them, as with webdataset's TarWriter"},
        {".h5",
         "a file of HDF5, which is not read; write Parquet or tars of it"},
        {".hdf5",
         "a file of HDF5, which is not read; write Parquet or tars of it"},
        {".mdb",
         "a database of LMDB, which is not read; write Parquet or tars of it"},
        {".pkl", "a pickle, which is code and not read; write Parquet of it"},
        {".feather",
         "a table of Arrow under another ending: `mv $0 $1/data.arrow`"},
    };
    for (const auto& [place, found] : tree_.others()) {
      for (const Form& form : kForms) {
        if (place.second != form.ending) continue;
        const std::string path = absl::StrCat(place.first, "/", found.first);
        const std::string more =
            found.count == 1
                ? ""
                : absl::StrCat(" (as ", found.count - 1, " more there)");
        Other(path + more, absl::Substitute(form.what, path, place.first));
      }
    }
    if (!seen_->files.empty()) return;
    SayClassFolders();
    SayDescriptions();
  }

  // Folders of images with nothing that says a text, as torchvision's
  // ImageFolder reads them: the folders are the classes.
  void SayClassFolders() {
    constexpr absl::string_view kImages[] = {".jpg", ".jpeg", ".png", ".webp",
                                             ".gif", ".bmp",  ".tif", ".tiff"};
    std::set<std::string> folders;
    uint64_t images = 0;
    for (const auto& [place, found] : tree_.others()) {
      if (std::find(std::begin(kImages), std::end(kImages), place.second) !=
          std::end(kImages)) {
        folders.insert(place.first);
        images += found.count;
      } else if (place.second == ".txt" || place.second == ".csv") {
        return;
      }
    }
    if (folders.size() < 2) return;
    const std::string& root = tree_.root();
    Other(*folders.begin(),
          absl::StrCat(
              images, " images in ", folders.size(),
              " folders, without a text: the name of a folder may be a class, "
              "and there is nothing else to learn. If it is the answer, write "
              "it into records: `cd ",
              root,
              " && python3 -c 'import glob, json, os; [print(json.dumps("
              "{\"image\": p, \"text\": os.path.basename(os.path.dirname("
              "p))})) for p in sorted(glob.glob(\"**/*.*\", "
              "recursive=True))]' > /tmp/classes.jsonl && mv "
              "/tmp/classes.jsonl .`, and run init again"));
  }

  // The forms of LLaMA-Factory's description of the files in its folder.
  void ReadForms(const DataTree::File& file) {
    const auto text = ReadSmallFile(file.path(), kMaxModelFile);
    if (!text.ok()) return;
    for (DescribedForm& described : ReadDatasetInfo(*text)) {
      given_[absl::StrCat(file.folder, "/", described.file_name)] =
          std::move(described.form);
    }
  }

  // Images with a text each, a.jpg and a.txt: lines of JSON that name both.
  void AddPairs(const std::string& folder, std::vector<std::string> names) {
    std::sort(names.begin(), names.end());
    SeenFiles files;
    files.format = Format::kJsonl;
    for (const std::string& name : names) {
      const std::string stem = name.substr(0, name.rfind('.'));
      std::string image;
      for (const char* ending : {".jpg", ".jpeg", ".png", ".webp", ".JPG"}) {
        if (tree_.HasFile(absl::StrCat(folder, "/", stem, ending)) == true) {
          image = absl::StrCat(stem, ending);
          break;
        }
      }
      if (image.empty()) continue;
      const auto text =
          ReadSmallFile(absl::StrCat(folder, "/", name), kMaxTextBytes);
      if (!text.ok() || files.lines.size() > kMaxPairs) {
        Other(absl::StrCat(folder, "/", name),
              text.ok() ? "its folder has more texts than `init` lists; write "
                          "tars of it: `tar --sort=name -cf data.tar -C "
                          "FOLDER .`"
                        : std::string(text.status().message()));
        return;
      }
      files.lines += "{\"image\": ";
      AppendJsonText(image, &files.lines);
      files.lines += ", \"text\": ";
      AppendJsonText(absl::StripAsciiWhitespace(ReplaceInvalidUtf8(*text)),
                     &files.lines);
      files.lines += "}\n";
      ++files.samples;
      files.most_text = std::max<uint64_t>(files.most_text, text->size());
    }
    // A text here and there beside an image is a notice.
    if (files.samples == 0 || files.samples < names.size() / 2) return;
    files.form.emplace();
    files.form->set_name("caption");
    files.form->add_images("image");
    files.form->set_text("text");
    files.explained = files.looked_at = files.samples;
    files.media.with[MediumKind::kImage] = files.samples;
    files.media.most[MediumKind::kImage] = 1;
    files.files = 1;
    files.bytes = files.lines.size();
    files.media_roots = {Named(folder, config_folder_)};
    files.path = Named(folder, config_folder_);
    seen_->files.push_back(std::move(files));
  }

  void Other(const std::string& path, std::string reason) {
    seen_->others.push_back({path, std::move(reason)});
  }

  void AddFiles(const std::string& parent, Format format,
                const NameGroup& group, const Sizes& sizes) {
    SeenFiles files;
    files.format = format;
    files.files = group.names.size();
    std::string folder = Named(parent, config_folder_);
    bool has_pattern = EscapePattern(&folder);
    std::vector<std::string> paths;
    for (std::string name : group.names) {
      paths.push_back(absl::StrCat(parent, "/", name));
      files.bytes += sizes.at(name);
      has_pattern = has_pattern && EscapePattern(&name);
    }
    if (!has_pattern) {
      Other(paths.front(),
            "braces and commas in names cannot be written in "
            "sources[].path; rename the file or its folder");
      return;
    }
    files.missing = MissingShards(paths);
    files.path = folder == "." ? group.pattern
                               : absl::StrCat(folder, "/", group.pattern);
    std::vector<std::string> roots = {parent, tree_.root()};
    roots.insert(roots.end(), tree_.folders().begin(), tree_.folders().end());
    std::vector<v1::Source::Form> given;
    if (const auto found = given_.find(paths.front()); found != given_.end()) {
      given.push_back(found->second);
    }
    LookAtFirstSamples(paths, roots, given, &tree_, &files);
    // These may hold anything.
    const bool may_be_other =
        format == Format::kCsv || others_.contains(paths.front());
    if (may_be_other && files.to_settle.empty() &&
        files.unknown > files.looked_at / 2) {
      return Other(files.path, files.first_fault);
    }
    if (NeedsRecipe(files)) files.record = FirstRecord(parent, files, paths);
    if (files.record.empty() && files.to_settle.empty() &&
        (files.looked_at == 0 || files.bad > files.looked_at / 2)) {
      Other(files.path,
            files.first_fault.empty() ? "no samples" : files.first_fault);
      return;
    }
    if (!files.record.empty()) {
      if (format != Format::kJsonl) files.media_roots.clear();
      if (files.media_roots.empty() && format == Format::kJsonl) {
        files.media_roots = {parent};
      }
    }
    for (std::string& root : files.media_roots) {
      root = Named(root, config_folder_);
    }
    seen_->files.push_back(std::move(files));
  }

  // Whether the records are of another form than those that are known.
  static bool NeedsRecipe(const SeenFiles& files) {
    if (files.form.has_value()) return false;
    if (files.looked_at == 0) return files.format == Format::kParquet;
    return files.unknown > files.looked_at / 2;
  }

  // The first record as a recipe would be given it; "" if it cannot be read.
  static std::string FirstRecord(const std::string& folder,
                                 const SeenFiles& files,
                                 const std::vector<std::string>& paths) {
    v1::Source source;
    source.set_name("any");
    source.set_recipe("any");
    source.set_format(
        files.format == Format::kWebDataset ? v1::Source::FORMAT_WEBDATASET
        : files.format == Format::kParquet  ? v1::Source::FORMAT_PARQUET
                                            : v1::Source::FORMAT_JSONL);
    std::string path = paths.front();
    if (!EscapePattern(&path)) return "";
    source.set_path(path);
    source.add_media_root(folder);
    const auto raw = FindRecord(source, "", 0, /*reports=*/false);
    if (!raw.ok()) return "";
    return ShowRecord(raw->given);
  }

  // Whether tars of this folder are shards of an Energon folder above it.
  bool IsOfEnergon(const std::string& folder) const {
    return std::any_of(tree_.energon().begin(), tree_.energon().end(),
                       [&folder](const std::string& above) {
                         return folder == above ||
                                absl::StartsWith(folder, above + "/");
                       });
  }

  void AddEnergon(const std::string& folder) {
    absl::StatusOr<std::vector<SeenFiles>> parts =
        LookAtEnergon(folder, Named(folder, config_folder_), &tree_);
    if (!parts.ok()) {
      Other(folder, std::string(parts.status().message()));
      return;
    }
    for (SeenFiles& files : *parts) seen_->files.push_back(std::move(files));
  }

  // A model's files in a store are not read.
  void LookForModel() {
    const std::string path =
        absl::StrCat(tree_.root(), "/preprocessor_config.json");
    if (tree_.HasFile(path) != true) return;
    Other(path,
          "a model's files are read from a disk alone; copy them into a folder "
          "and name it with --model-dir");
  }

  DataTree tree_;
  const fs::path config_folder_;
  Seen* const seen_;
  uint64_t json_files_ = 0;
  std::map<std::string, v1::Source::Form> given_;  // by path
  std::set<std::string> others_;  // arrays of JSON of no known key
  std::vector<DataTree::File> descriptions_;
  std::map<std::string, std::vector<std::string>> texts_;  // by folder
  std::map<std::pair<std::string, Format>, Sizes> found_;  // by folder
  // Names by folder and by the reason why they are left out.
  std::map<std::pair<std::string, std::string>, std::vector<std::string>>
      compressed_;
};

std::string GetText(const fs::path& file) {
  return ReadSmallFile(file.string(), kMaxModelFile).value_or("");
}

SeenModel LookAtModel(const fs::path& folder, const fs::path& config_folder) {
  SeenModel model;
  model.config = GetText(folder / "config.json");
  // transformers 5 writes all processors into one file, and reads it first.
  constexpr char kNested[] = "processor_config.json";
  model.preprocessor = GetText(folder / kNested);
  if (absl::StrContains(model.preprocessor, "\"image_processor\"") ||
      absl::StrContains(model.preprocessor, "\"feature_extractor\"")) {
    model.processor_file = kNested;
  } else {
    model.preprocessor = GetText(folder / model.processor_file);
  }
  if (model.config.empty() && model.preprocessor.empty()) return model;
  model.folder = Named(folder, config_folder);
  std::error_code error;
  model.has_tokenizer = fs::exists(folder / "tokenizer.json", error);
  const TemplateFiles files = {GetText(folder / "chat_template.jinja"),
                               GetText(folder / "chat_template.json"),
                               GetText(folder / "tokenizer_config.json")};
  model.chat_template = files.jinja + files.json + files.tokenizer_config;
  model.own_template = OwnTemplate(files);
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

// Absolute, and without a slash at its end.
std::string Plain(const std::string& folder) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).string();
}

// Refuses settings of any store but `section`'s ("": of all stores).
absl::Status CheckOptions(const LookOptions& options,
                          absl::string_view section) {
  for (const SeenStore& store : options.stores) {
    if (store.section == section || StoreSettingsText(store).empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        options.folder, ": found ",
        section.empty() ? "a folder with options --" : "options --",
        store.section,
        section.empty() ? "-…; wanted an address, s3://BUCKET/PREFIX"
                        : "-… for a store of another kind; wanted the options "
                          "of its kind",
        ", or none of them"));
  }
  return absl::OkStatus();
}

absl::StatusOr<DataTree> LookInFolder(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    if (error == std::errc::no_such_file_or_directory) {
      return absl::NotFoundError(
          absl::StrCat(folder, ": found no such folder in ",
                       fs::current_path(error).string(),
                       "; wanted the folder of a dataset"));
    }
    if (error) return FileError(error.value(), "look at", folder);
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": found a file; wanted the folder of a dataset"));
  }
  return DataTree::Look(Plain(folder));
}

// Names the files of `store` as the configuration in `config_folder` shall.
absl::StatusOr<DataTree> LookInStore(const LookOptions& options,
                                     const std::string& config_folder,
                                     SeenStore* store) {
  BALLAST_ASSIGN_OR_RETURN(const StoreUrl parsed,
                           ParseStoreUrl(options.folder));
  const std::string section = parsed.scheme == "gs"     ? "gcs"
                              : parsed.scheme == "abfs" ? "azure"
                              : parsed.scheme == "s3"   ? "s3"
                                                        : parsed.scheme;
  BALLAST_RETURN_IF_ERROR(CheckOptions(options, section));
  for (const SeenStore& each : options.stores) {
    if (each.section == section) *store = each;
  }
  if (!store->ca.empty()) store->ca = Named(Plain(store->ca), config_folder);
  std::string& keys = store->credentials;
  if (!keys.empty() && keys != "environment" && keys != "instance" &&
      keys != "anonymous") {
    keys = Named(Plain(keys), config_folder);
  }
  BALLAST_ASSIGN_OR_RETURN(const v1::Storage settings,
                           StoreSettings(*store, config_folder));
  BALLAST_RETURN_IF_ERROR(Storage::OfProcess().Configure(settings));
  // What is written down stays the version that was looked at.
  std::string root = parsed.path;
  if (parsed.scheme == "hf") {
    BALLAST_ASSIGN_OR_RETURN(HubAccess access, ResolveHubAccess());
    BALLAST_ASSIGN_OR_RETURN(
        root, PinHubPath(root, std::move(access), Clock::Real()));
  }
  absl::StatusOr<DataTree> tree =
      DataTree::Look(absl::StrCat(parsed.scheme, "://", root));
  const bool has_options =
      std::any_of(options.stores.begin(), options.stores.end(),
                  [&](const auto& each) { return each.section == section; });
  if (tree.ok() || !has_options) return tree;
  return absl::Status(
      tree.status().code(),
      absl::StrCat(tree.status().message(), " (init takes the keys of storage.",
                   section, " as --", section, "-endpoint, --", section,
                   "-credentials and so on)"));
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

absl::StatusOr<Seen> LookAtFolder(const LookOptions& options) {
  Seen seen;
  seen.folder = options.folder;
  seen.in_store = IsStoreUrl(options.folder);
  const std::string config = Plain(options.config_folder);
  if (!seen.in_store) BALLAST_RETURN_IF_ERROR(CheckOptions(options, ""));
  BALLAST_ASSIGN_OR_RETURN(
      DataTree tree, seen.in_store ? LookInStore(options, config, &seen.store)
                                   : LookInFolder(options.folder));
  const bool names_model = !options.model_folder.empty();
  if (names_model) {
    seen.model = LookAtModel(Plain(options.model_folder), config);
  } else if (!seen.in_store) {
    seen.model = LookAtModel(tree.root(), config);
  }
  TreeLooker(std::move(tree), config, &seen).Look();
  if (!names_model && seen.model.preprocessor.empty() &&
      !absl::StrContains(seen.model.config, "\"model_type\"")) {
    seen.model = SeenModel();  // another program's config.json
  }
  if (names_model && seen.model.folder.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "--model-dir ", options.model_folder,
        ": found neither config.json nor preprocessor_config.json; wanted the "
        "folder of a Hugging Face model, such as a snapshot below "
        "~/.cache/huggingface/hub"));
  }
  seen.gpus = CountGpus();
  seen.memory_bytes = MachineMemory();
  return seen;
}

}  // namespace ballast
