#ifndef BALLAST_SERVER_COMMAND_INIT_SEEN_H_
#define BALLAST_SERVER_COMMAND_INIT_SEEN_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ballast {

// Facts from which `ballast-server init` decides. Values; paths are as the
// configuration shall name them.

// Files of one folder that form a source.
struct SeenFiles {
  enum class Format { kWebDataset, kJsonl, kParquet, kEnergon, kMegatron };
  Format format = Format::kWebDataset;
  // Pattern of the files, for sources[].path; energon: the folder.
  std::string path;
  // Number of files, and their bytes.
  uint64_t files = 0;
  uint64_t bytes = 0;
  // Samples of all files; counted in the first ones and estimated from their
  // bytes if `estimated`.
  uint64_t samples = 0;
  bool estimated = false;
  // Samples that were read, how many of them are bad, and why the first is.
  uint64_t looked_at = 0;
  uint64_t bad = 0;
  std::string first_fault;
  // Samples of an unknown form; and the first record, for a recipe to be
  // written (ShowRecord): "" if the source needs none.
  uint64_t unknown = 0;
  std::string record;
  // Samples among those read that only the checkpoint's own template writes,
  // and why the first does; they are not bad.
  uint64_t for_own_template = 0;
  std::string first_for_own_template;
  // Preference pairs among those read, and the keys of the first.
  uint64_t pairs = 0;
  std::string pair_form;
  // Samples with images among those read, and the largest number of images and
  // bytes of text in one of them.
  uint64_t with_images = 0;
  uint64_t most_images = 0;
  uint64_t most_text = 0;
  // Likewise with clips of audio.
  uint64_t with_clips = 0;
  uint64_t most_clips = 0;
  // jsonl: the folder below which every image and clip was found, "" if no
  // sample that was read has any.
  std::string media_root;
  // energon: the split that its description says, and whether its samples are
  // to be read as tars are.
  std::string split;
  bool crude = false;
};

// Something in the folder that no source can be made of.
struct SeenOther {
  std::string path;
  std::string reason;  // and what to do
};

// The model's files.
struct SeenModel {
  // "" if there is no model.
  std::string folder;
  bool has_tokenizer = false;  // tokenizer.json
  // Texts of the files, "" if missing.
  std::string config;        // config.json
  std::string preprocessor;  // preprocessor_config.json
  // chat_template.jinja, chat_template.json, tokenizer_config.json, together.
  std::string chat_template;
  // The template in them (server/text/chat_writer.h).
  std::string own_template;
};

// Settings of a store, as of `storage`; "": the default.
struct SeenStore {
  // "s3", "gcs" or "azure": its section, and what its options begin with.
  std::string section = "s3";
  std::string account = "";  // azure
  std::string endpoint = "";
  std::string region = "";  // s3
  std::string credentials = "";
  std::string ca = "";  // s3
};

struct Seen {
  // The folder or the prefix of a store, as the user named it.
  std::string folder;
  bool in_store = false;
  SeenStore store;
  std::vector<SeenFiles> files;
  std::vector<SeenOther> others;
  // Entries beyond the bound were not looked at.
  bool cut = false;
  SeenModel model;
  uint64_t gpus = 0;
  // Of this machine; 0 if unknown.
  uint64_t memory_bytes = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_SEEN_H_
