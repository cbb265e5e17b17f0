#ifndef BALLAST_SERVER_COMMAND_INIT_CHOOSE_FORM_H_
#define BALLAST_SERVER_COMMAND_INIT_CHOOSE_FORM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/command/init/data_tree.h"
#include "server/data/record_parser.h"

namespace ballast {

// A form and what it makes of the first records of a source.
struct FormTrial {
  // With the keys that the records have, of those that the form knows.
  v1::Source::Form form;
  uint64_t good = 0;  // records that it explains
  // Records that it would explain, but for keys that the user has to settle, if
  // it explains none; and these keys.
  uint64_t unsettled = 0;
  std::vector<std::string> to_settle;
  uint64_t for_own_template = 0;
  std::string first_for_own_template;
  std::string first_fault;  // of a record that it does not explain
  // Keys of the first record that it explains, or else of the first, which it
  // does not read.
  std::vector<std::string> unread;
  // What to do with the first record's addresses of pictures, if it explains
  // none: "; download …"; or "".
  std::string way_out;
  // Of those that it explains.
  SeenMedia media;
  uint64_t most_text = 0;
  std::vector<std::string> paths;  // of media
  // What it makes of the first record: its text with the places of images, and
  // what is learnt. On one line.
  std::string example;
  // Another form that explains as many, by as many keys, otherwise; "": none.
  std::string also;
};

// The form that explains the most of `records`: of `given`, or else of forms/;
// among equals the one that leaves the most to be settled, then the one that
// reads the most of their keys, then the first one. Pure.
FormTrial ChooseForm(absl::Span<const RawRecord> records,
                     absl::Span<const v1::Source::Form> given);

// The forms that LLaMA-Factory's dataset_info.json describes, by the name of
// their file. Empty if `json` is another file. Pure.
struct DescribedForm {
  std::string file_name;
  v1::Source::Form form;
};
std::vector<DescribedForm> ReadDatasetInfo(const std::string& json);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_CHOOSE_FORM_H_
