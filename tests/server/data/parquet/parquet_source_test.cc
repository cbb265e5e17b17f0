#include "server/data/parquet/parquet_parser.h"

#include <dlfcn.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "server/data/index/index_builder.h"
#include "server/data/open_source.h"
#include "server/data/parquet/parquet_file.h"
#include "server/data/source_files.h"
#include "server/files/file.h"
#include "tests/fakes/read_sample.h"
#include "tests/server/data/parquet/parquet_testing.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using ParquetSourceTest = ParquetTest;

TEST_F(ParquetSourceTest, RecognisesTheShapesOfOtherWriters) {
  for (const char* name :
       {"finevision.parquet", "cauldron.parquet", "llava.parquet",
        "openai.parquet", "other_types.parquet", "wide.parquet"}) {
    SCOPED_TRACE(name);
    const v1::Source source = GetSource(name);
    const IndexReport report = Build(source);
    EXPECT_EQ(report.bad.size(), 0u);
    ExpectSamples(name, *Open(source));
  }
}

// Arrow's own files, whose record batches are row groups.
TEST_F(ParquetSourceTest, ReadsArrowsFiles) {
  for (const char* name : {"stream.arrow", "file.arrow"}) {
    SCOPED_TRACE(name);
    const v1::Source source = GetSource(name);
    EXPECT_EQ(Build(source).bad.size(), 0u);
    ExpectSamples(name, *Open(source));
  }
}

// A cut of a stream never looks like a shorter one.
TEST_F(ParquetSourceTest, ACutStreamIsNone) {
  const std::string whole = GetFile("stream.arrow");
  const v1::Source source = GetSource("stream.arrow");
  ParquetColumns columns;
  columns.recognise = true;
  for (size_t size = 8; size < whole.size(); size += 61) {
    WriteFile(path_, whole.substr(0, size));
    const auto file = File::Open(path_);
    ASSERT_TRUE(file.ok());
    const auto opened = OpenParquetFile(FileView(&*file), columns);
    EXPECT_TRUE(size + 8 > whole.size() || absl::IsDataLoss(opened.status()))
        << size << " " << opened.status();
  }
}

// The rows of a file, each with an image's bytes wherever they lie, are those
// of expected_rows.json.
class ParquetRowsTest : public ParquetTest {
 protected:
  using Rows = absl::StatusOr<std::shared_ptr<const ParquetRows>>;

  // Returns how many images were in pieces of the file, and how many were not.
  std::pair<int, int> ExpectRows(
      const std::string& name,
      absl::FunctionRef<Rows(const ParquetFile&, const File&, size_t)> read) {
    std::pair<int, int> seen;
    static const auto& all = *new nlohmann::json(
        nlohmann::json::parse(GetFile("expected_rows.json")));
    const auto& expected = all.at(name).at("samples");
    WriteFile(path_, GetFile(name));
    const auto file = File::Open(path_);
    EXPECT_TRUE(file.ok()) << file.status();
    ParquetColumns columns;
    columns.recognise = true;
    const auto opened = OpenParquetFile(&*file, columns);
    EXPECT_TRUE(opened.ok()) << opened.status();
    size_t number = 0;
    for (size_t i = 0; i < (*opened)->groups().size(); ++i) {
      const Rows rows = read(**opened, *file, i);
      EXPECT_TRUE(rows.ok()) << rows.status();
      for (uint64_t row = 0; row < (*rows)->size(); ++row, ++number) {
        SCOPED_TRACE(absl::StrCat("row ", number));
        const auto found = (*rows)->Row(row);
        EXPECT_TRUE(found.ok()) << found.status();
        if (!found.ok() || number >= expected.size()) continue;
        const auto& wanted = expected[number];
        EXPECT_EQ(nlohmann::json::parse(found->text)["messages"],
                  wanted["messages"]);
        EXPECT_EQ(found->images.size(), wanted["images"].size());
        for (size_t k = 0; k < found->images.size(); ++k) {
          const ParquetImage& image = found->images[k];
          std::string bytes(image.bytes);
          (image.pieces.empty() ? seen.second : seen.first) += 1;
          if (!image.pieces.empty()) {
            bytes.resize(image.size);
            EXPECT_TRUE(
                ReadPieces(&*file, image.pieces, image.others, bytes.data())
                    .ok());
          }
          EXPECT_EQ(absl::Base64Escape(bytes),
                    wanted["images"][k].get<std::string>());
        }
      }
    }
    EXPECT_EQ(number, expected.size());
    return seen;
  }

  static Rows Whole(const ParquetFile& parquet, const File& file, size_t i) {
    return parquet.Read(&file, i);
  }
  static Rows Places(const ParquetFile& parquet, const File& file, size_t i) {
    return parquet.ReadPlaces(&file, i);
  }
};

// Images are views of the pages where these are PLAIN or have a dictionary, and
// decoded by Arrow otherwise.
TEST_F(ParquetRowsTest, HaveImagesOfPagesOfAllKinds) {
  for (const char* name : {"none_1",
                           "none_2",
                           "snappy_1",
                           "snappy_2",
                           "gzip_1",
                           "gzip_2",
                           "brotli_1",
                           "brotli_2",
                           "zstd_1",
                           "zstd_2",
                           "lz4_1",
                           "lz4_2",
                           "coded",
                           "delta_length_byte_array",
                           "delta_byte_array",
                           "required",
                           "single",
                           "struct",
                           "view",
                           "fixed"}) {
    const std::string file = absl::StrCat("pages_", name, ".parquet");
    SCOPED_TRACE(file);
    EXPECT_EQ(ExpectRows(file, Whole).first, 0);
    // Images of a kilobyte are read with their pages.
    EXPECT_EQ(ExpectRows(file, Places).first, 0);
  }
}

// Images that the file holds as they are stay there until they are read.
TEST_F(ParquetRowsTest, HaveImagesThatStayInTheFile) {
  for (const char* name : {"none_1", "none_2", "snappy_1", "snappy_2", "coded",
                           "single", "least_1", "least_2"}) {
    const std::string file = absl::StrCat("placed_", name, ".parquet");
    SCOPED_TRACE(file);
    EXPECT_EQ(ExpectRows(file, Whole).first, 0);
    EXPECT_EQ(ExpectRows(file, Places).second, 0);
  }
  // A checksum says that all of a page is right.
  EXPECT_EQ(ExpectRows("placed_checksums.parquet", Places).first, 0);
}

TEST_F(ParquetSourceTest, ReadsImagesWhereTheyLie) {
  const v1::Source source = GetSource("placed_snappy_1.parquet");
  EXPECT_EQ(Build(source).bad.size(), 0u);
  ExpectSamples("placed_snappy_1.parquet", *Open(source));
}

TEST_F(ParquetSourceTest, PresetsAndColumnsNameTheSame) {
  const std::pair<const char*, v1::Source::Preset> presets[] = {
      {"finevision.parquet", v1::Source::PRESET_FINEVISION},
      {"cauldron.parquet", v1::Source::PRESET_CAULDRON},
      {"llava.parquet", v1::Source::PRESET_LLAVA},
      {"openai.parquet", v1::Source::PRESET_OPENAI}};
  for (const auto& [name, preset] : presets) {
    SCOPED_TRACE(name);
    v1::Source source = GetSource(name);
    source.set_preset(preset);
    Build(source);
    ExpectSamples(name, *Open(source));
  }
  v1::Source source = GetSource("llava.parquet");
  source.mutable_columns()->set_image("image");
  source.mutable_columns()->set_conversations("conversations");
  Build(source);
  ExpectSamples("llava.parquet", *Open(source));
}

TEST_F(ParquetSourceTest, ReadsAnEmptyFile) {
  for (const char* name : {"empty.parquet", "untyped.parquet"}) {
    const v1::Source source = GetSource(name);
    EXPECT_EQ(Build(source).samples, 0u) << name;
    EXPECT_EQ(Open(source)->index().group_starts().size(), 0u) << name;
  }
}

TEST_F(ParquetSourceTest, LeavesOutRowsThatFailAFilter) {
  v1::Source source = GetSource("filtered.parquet");
  source.add_filters("image_correspondence_min >= 2");
  const IndexReport report = Build(source);
  EXPECT_EQ(report.filtered, 4u);
  EXPECT_EQ(report.samples, 3u);
  ExpectSamples("filtered.parquet", *Open(source));
  source.add_filters("source == \"set 0\"");
  EXPECT_THAT(
      std::string(CheckIndexFresh(source, folder_, FakeKey()).message()),
      HasSubstr("other columns, filters or fields"));
  EXPECT_EQ(Build(source).samples, 2u);
}

TEST_F(ParquetSourceTest, ListsBadRows) {
  const v1::Source source = GetSource("bad_rows.parquet");
  const IndexReport report = Build(source);
  std::vector<std::string> bad;
  for (const BadSample& row : report.bad) {
    bad.push_back(absl::StrCat(row.key, ": ", row.reason));
  }
  EXPECT_THAT(
      bad,
      ElementsAre("2: image 1 is null",
                  "3: image 1 is only a path, a/b.jpg, which is not followed",
                  "4: image 1: cut inside its header: no mark",
                  "5: image 1: no image", "6: image 1: an image of 0x4 pixels",
                  "7: column texts is null", "8: no turns",
                  "9: turn 1: `user` is null", "10: turn 1: `user` is null",
                  "11: video is not supported: mark `<video>`",
                  "12: unmeasurable"));
  ExpectSamples("bad_rows.parquet", *Open(source));
}

TEST_F(ParquetSourceTest, ComparesImagesWithThePartsThatNameThem) {
  const auto build = [&](const char* file, uint64_t samples) {
    const IndexReport report = Build(GetSource(file));
    EXPECT_EQ(report.samples, samples);
    std::vector<std::string> bad;
    for (const BadSample& row : report.bad) {
      bad.push_back(absl::StrCat(row.key, ": ", row.reason));
    }
    return bad;
  };
  const auto differs = [](int row, absl::string_view named, int place,
                          absl::string_view found) {
    return absl::StrCat(row, ": a part of type image names ", named,
                        " in place ", place, ", and image ", place,
                        " of column images is ", found,
                        "; wanted the images in the order of their parts and "
                        "marks");
  };
  EXPECT_THAT(
      build("image_parts.parquet", 5),
      ElementsAre(
          differs(5, "b.jpg", 1, "a.jpg"), differs(6, "a.jpg", 1, "aa.jpg"),
          "7: a part of type image names a.jpg, and the row has no images; "
          "images outside of the file are not read",
          // Behind a mark in a text.
          differs(9, "a.jpg", 2, "b.jpg")));
  EXPECT_THAT(
      build("image_part_indexes.parquet", 2),
      ElementsAre("2: turn 1: content part 1: `index` of an image part "
                  "is 1, and the part is image 0 of the turns, from 0: parts "
                  "take images in order; put the images into the order "
                  "of the parts"));
  // Turns that are text.
  EXPECT_THAT(build("image_turns.parquet", 1),
              ElementsAre(differs(2, "b.jpg", 1, "a.jpg"),
                          differs(3, "a.jpg", 2, "b.jpg")));
}

TEST_F(ParquetSourceTest, NamesImagesInsideOfParts) {
  for (const char* type : {"struct", "bytes"}) {
    const IndexReport report =
        Build(GetSource(absl::StrCat("image_in_part_", type, ".parquet")));
    EXPECT_EQ(report.samples, 1u);
    ASSERT_EQ(report.bad.size(), 1u);
    EXPECT_THAT(report.bad[0].reason,
                HasSubstr("those inside parts are not read"));
  }
}

TEST_F(ParquetSourceTest, ReadsWhatStandsBesideTurnsAndTheirTexts) {
  for (const char* name : {"beside.parquet", "tool_calls.parquet",
                           "thinking_parts.parquet", "captions.parquet"}) {
    SCOPED_TRACE(name);
    const v1::Source source = GetSource(name);
    EXPECT_EQ(Build(source).bad.size(), 0u);
    ExpectSamples(name, *Open(source));
  }
}

TEST_F(ParquetSourceTest, ReadsAgentsAndDocuments) {
  const auto check = [&](const std::string& name,
                         const std::vector<std::string>& bad) {
    SCOPED_TRACE(name);
    const v1::Source source = GetSource(name);
    std::vector<std::string> found;
    for (const BadSample& sample : Build(source).bad) {
      found.push_back(absl::StrCat(sample.key, ": ", sample.reason));
    }
    ASSERT_EQ(found.size(), bad.size());
    for (size_t i = 0; i < bad.size(); ++i) {
      EXPECT_THAT(found[i], HasSubstr(bad[i]));
    }
    ExpectSamples(name, *Open(source));
  };
  check("agents.parquet", {"2: turn 2: `content` is null"});
  check("json_turns.parquet", {"2: not JSON"});
  check("text.parquet", {"3: column text is null", "4: video is not"});
  for (const char* name : {"places.parquet", "places_bytes.parquet"}) {
    check(name, {"2: place 1: both a text and an image",
                 "3: column texts has 1 places, images has 2",
                 "4: column texts has"});
  }
}

TEST_F(ParquetSourceTest, ReadsFilesInWhichNoRowHasAnImage) {
  for (const bool named : {false, true}) {
    v1::Source source = GetSource("null_image.parquet");
    if (named) {
      source.mutable_columns()->set_image("image");
      source.mutable_columns()->set_texts("texts");
    }
    EXPECT_EQ(Build(source).samples, 3u);
    ExpectSamples("null_image.parquet", *Open(source));
  }
  const v1::Source source = GetSource("null_images.parquet");
  const IndexReport report = Build(source);
  ASSERT_EQ(report.bad.size(), 1u);
  EXPECT_EQ(report.bad[0].reason, "image 1 is null");
  ExpectSamples("null_images.parquet", *Open(source));
}

// Who reads the conversation decides about the weight.
TEST_F(ParquetSourceTest, KeepsHowMuchTurnsCount) {
  const v1::Source source = GetSource("turn_weights.parquet");
  const IndexReport report = Build(source);
  EXPECT_EQ(report.bad.size(), 0u);
  const auto opened = Open(source);
  const auto text = [&](uint64_t i) {
    const auto sample = ReadSample(*opened, i);
    EXPECT_TRUE(sample.ok()) << sample.status();
    return sample.ok() ? sample->text : "";
  };
  const std::string user = R"({"messages":[{"role":"human","content":"q"},)";
  EXPECT_EQ(text(0), user + R"({"role":"gpt","content":"a","weight":0,)"
                            R"("loss":"low","train":"false"}]})");
  EXPECT_EQ(text(1), user + R"({"role":"gpt","content":"a","weight":1,)"
                            R"("loss":"low"}]})");
  EXPECT_EQ(text(2), user + R"({"role":"gpt","content":"a",)"
                            R"("loss":"low","reasoning_content":"so"}]})");
}

// They are keys beside the turns, and in them; of a document beside its text.
TEST_F(ParquetSourceTest, HasFieldsOfColumnsAndTurns) {
  v1::Source source = GetSource("fields.parquet");
  const auto add = [&](const char* name, v1::Source::Field::Per per,
                       bool may_lack) {
    v1::Source::Field& field = (*source.mutable_fields())[name];
    field.set_type(v1::Source::Field::TYPE_FLOAT32);
    field.set_per(per);
    if (may_lack) field.set_default_(0);
  };
  add("advantage", v1::Source::Field::PER_SAMPLE, false);
  add("logprob", v1::Source::Field::PER_TOKEN, false);
  add("part", v1::Source::Field::PER_TURN, false);
  EXPECT_EQ(Build(source).bad.size(), 0u);
  const auto opened = Open(source);
  const auto text = [&](uint64_t i) {
    const auto sample = ReadSample(*opened, i);
    EXPECT_TRUE(sample.ok()) << sample.status();
    return sample.ok() ? sample->text : "";
  };
  EXPECT_EQ(text(0),
            R"({"messages":[{"role":"user","content":"q","part":0},)"
            R"({"role":"assistant","content":"a"}],)"
            R"("advantage":0.10000000149011612,"logprob":[0.5,0.25]})");
  EXPECT_EQ(text(1), R"({"messages":[{"role":"user","content":"q","part":1},)"
                     R"({"role":"assistant","content":"a"}]})");

  add("missing", v1::Source::Field::PER_SAMPLE, false);
  const auto report = BuildIndex(source, folder_, FakeOptions());
  EXPECT_THAT(std::string(report.status().message()),
              HasSubstr("no column missing, which sources[].fields names"));
  add("missing", v1::Source::Field::PER_SAMPLE, true);
  EXPECT_EQ(Build(source).bad.size(), 0u);

  source = GetSource("fields_text.parquet");
  add("advantage", v1::Source::Field::PER_SAMPLE, false);
  EXPECT_EQ(Build(source).bad.size(), 0u);
  const auto document = ReadSample(*Open(source), 1);
  ASSERT_TRUE(document.ok()) << document.status();
  EXPECT_EQ(document->text, "b");
  EXPECT_EQ(document->fields, R"({"advantage":2})");
  add("name", v1::Source::Field::PER_SAMPLE, false);
  EXPECT_THAT(
      std::string(
          BuildIndex(source, folder_, FakeOptions()).status().message()),
      HasSubstr("column name: found string; wanted a number"));
}

// Writers put NaN for what is missing; infinity reaches the reader of fields,
// which names it, in place of the default.
TEST_F(ParquetSourceTest, InfinityIsNotAMissingField) {
  v1::Source source = GetSource("fields_not_finite.parquet");
  v1::Source::Field& field = (*source.mutable_fields())["advantage"];
  field.set_type(v1::Source::Field::TYPE_FLOAT32);
  field.set_per(v1::Source::Field::PER_SAMPLE);
  EXPECT_EQ(Build(source).bad.size(), 0u);
  const auto opened = Open(source);
  for (const auto& [number, fields] :
       {std::pair(0, R"({"advantage":null})"),
        std::pair(1, R"({"advantage":"inf"})"),
        std::pair(2, R"({"advantage":"-inf"})")}) {
    const auto document = ReadSample(*opened, number);
    ASSERT_TRUE(document.ok()) << document.status();
    EXPECT_EQ(document->fields, fields);
  }
}

TEST_F(ParquetSourceTest, RefusesColumnsWithoutWhichRowsTeachSomethingElse) {
  // By name: why, and whether there are turns that `columns` can name.
  const std::tuple<const char*, const char*, bool> files[] = {
      {"unread_label.parquet", "column `label` marks answers", true},
      {"unread_tag.parquet", "column `kto_tag` marks answers", true},
      {"unread_image_url.parquet", "column image_url seems to hold media",
       true},
      {"unread_base64.parquet", "column image_base64 seems to hold media",
       false},
      {"unread_coyo.parquet", "column url has addresses of pictures", false},
      {"unread_datacomp.parquet", "column url has addresses of pictures",
       false},
  };
  for (const auto& [name, why, has_turns] : files) {
    v1::Source source = GetSource(name);
    const auto report = BuildIndex(source, folder_, FakeOptions());
    EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(report.status().message()), HasSubstr(why));
    if (!has_turns) continue;
    // The user has named what is wanted.
    source.mutable_columns()->set_messages("messages");
    EXPECT_EQ(Build(source).samples, 1u) << name;
  }
  EXPECT_EQ(Build(GetSource("read_fineweb.parquet")).samples, 1u);
  EXPECT_EQ(Build(GetSource("read_class.parquet")).samples, 1u);
}

TEST_F(ParquetSourceTest, RefusesPreferencePairs) {
  for (const char* name : {"pair.parquet", "pair_text.parquet"}) {
    v1::Source source = GetSource(name);
    const auto report = BuildIndex(source, folder_, FakeOptions());
    EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(report.status().message()),
                HasSubstr("makes this a preference pair"));
  }
  EXPECT_EQ(Build(GetSource("pair_flag.parquet")).bad.size(), 0u);
  // The user has chosen one of its answers.
  v1::Source source = GetSource("pair.parquet");
  source.mutable_columns()->set_messages("rejected");
  EXPECT_EQ(Build(source).samples, 1u);
}

TEST_F(ParquetSourceTest, ReadsPreferencePairsOfASourceThatSaysSo) {
  IndexOptions options = FakeOptions();
  options.pairs = true;
  const auto build = [&](const char* name) {
    v1::Source source = GetSource(name);
    source.set_pairs(true);
    return std::pair(source, BuildIndex(source, folder_, options));
  };
  const auto [parts, report] = build("pair_parts.parquet");
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 2u);
  EXPECT_EQ(report->media[MediumKind::kImage], 1u);
  ASSERT_EQ(report->bad.size(), 1u);
  EXPECT_THAT(report->bad[0].reason, HasSubstr("there is no `prompt`"));
  const auto sample = ReadSample(*Open(parts), 0);
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(sample->text_format, RawSample::TextFormat::kPair);
  const std::string ask =
      R"({"role":"user","content":[{"type":"image"},{"type":"text","text":"q"}]})";
  const auto said = [](const char* text) {
    return absl::StrCat(R"({"role":"assistant","content":[{"type":"text",)",
                        R"("text":")", text, R"("}]})");
  };
  EXPECT_EQ(sample->text, absl::StrCat("[", ask, ",", said("a"), "]\n[", ask,
                                       ",", said("b"), "]\n"));
  const auto [texts, of_texts] = build("pair_prompt.parquet");
  ASSERT_TRUE(of_texts.ok()) << of_texts.status();
  EXPECT_EQ(of_texts->samples, 1u);
  EXPECT_EQ(of_texts->bad.size(), 1u);  // half a pair
  const auto marked = ReadSample(*Open(texts), 0);
  ASSERT_TRUE(marked.ok()) << marked.status();
  EXPECT_THAT(marked->text, HasSubstr(R"("content":"<image>q")"));
  EXPECT_THAT(
      std::string(build("pair_pictures.parquet").second.status().message()),
      HasSubstr("wanted parts without images"));
  EXPECT_THAT(
      std::string(build("fields.parquet").second.status().message()),
      HasSubstr("no preference pair, and the source has `pairs: true`"));
}

// One such text does not cost the row group: who reads the conversation decides
// about the row.
TEST_F(ParquetSourceTest, KeepsTextsThatAreNotUtf8) {
  EXPECT_EQ(Build(GetSource("invalid_utf8.parquet")).samples, 2u);
  const auto file = File::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  ParquetColumns columns;
  columns.recognise = true;
  const auto opened = OpenParquetFile(&*file, columns);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto rows = (*opened)->Read(&*file, 0);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ((*rows)->size(), 2u);
  EXPECT_THAT((*rows)->Row(0)->text, HasSubstr("\"content\":\"a\"}"));
  EXPECT_THAT((*rows)->Row(1)->text, HasSubstr("\"content\":\"\xff"
                                               "b\"}"));
}

// deploy/setup.sh hides the libraries that libparquet bundles. Otherwise this
// process would call them in place of its own.
TEST_F(ParquetSourceTest, TheWheelLendsOutNoLibraries) {
  for (const char* name : {"EVP_sha256", "X509_free", "CRYPTO_free",
                           "_ZN8simdjson13validate_utf8EPKcm",
                           "_ZN8simdjson25get_active_implementationEv"}) {
    void* const found = dlsym(RTLD_DEFAULT, name);
    Dl_info info = {};
    if (found == nullptr || dladdr(found, &info) == 0) continue;
    EXPECT_THAT(info.dli_fname, Not(HasSubstr("libparquet"))) << name;
    EXPECT_THAT(info.dli_fname, Not(HasSubstr("libarrow"))) << name;
  }
}

TEST_F(ParquetSourceTest, SaysWhichColumnsDoNotFit) {
  const auto error = [&](const v1::Source& source) {
    const auto report = BuildIndex(source, folder_, FakeOptions());
    EXPECT_EQ(report.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(report.status().message());
  };
  EXPECT_THAT(error(GetSource("urls.parquet")),
              HasSubstr("docs.parquet: column image: found string; wanted "
                        "images in the file"));
  EXPECT_THAT(error(GetSource("pictures.parquet")),
              HasSubstr("column picture has files, and is not read"));
  EXPECT_THAT(error(GetSource("bytes.parquet")),
              HasSubstr("column picture has bytes, and is not read"));
  v1::Source names = GetSource("names.parquet");
  EXPECT_THAT(error(names),
              HasSubstr("column file_name names files, a/1.JPG among them, and "
                        "is not read"));
  names.mutable_columns()->set_texts("texts");
  EXPECT_EQ(Build(names).samples, 2u);
  EXPECT_THAT(error(GetSource("second.parquet")),
              HasSubstr("column mask has files, and is not read: name the "
                        "columns in `columns` if it may be left out"));
  EXPECT_THAT(error(GetSource("addresses.parquet")),
              HasSubstr("column image: found string; wanted images"));
  EXPECT_THAT(error(GetSource("places_urls.parquet")),
              HasSubstr("column images: found list<"));
  EXPECT_THAT(error(GetSource("two.parquet")),
              HasSubstr("both conversations and texts may be meant"));
  EXPECT_THAT(error(GetSource("none.parquet")),
              HasSubstr("The file has question, answer"));
  v1::Source source = GetSource("finevision.parquet");
  source.set_preset(v1::Source::PRESET_LLAVA);
  EXPECT_THAT(error(source),
              HasSubstr("no column conversations; the file has images, texts"));
  source.clear_preset();
  source.mutable_columns()->set_texts("source");
  EXPECT_THAT(error(source),
              HasSubstr("column source: found string; wanted a list of structs "
                        "with the texts `user` and `assistant`"));
  source.clear_columns();
  source.add_filters("source > 3");
  EXPECT_THAT(error(source),
              HasSubstr("column source: found string; wanted a number"));
  source.set_filters(0, "images == \"a\"");
  EXPECT_THAT(error(source), HasSubstr("wanted a text"));
  source.set_filters(0, "nothing > 3");
  EXPECT_THAT(error(source), HasSubstr("no column nothing"));
}

TEST_F(ParquetSourceTest, DecodesARowGroupOnce) {
  const v1::Source source = GetSource("finevision.parquet");
  Build(source);
  const auto opened = Open(source);
  for (uint64_t i = 0; i < 7; ++i) {
    // From memory, a sample waits for its row group.
    const auto early = ReadSample(*opened, i, {.from = ReadFrom::kMemory});
    EXPECT_EQ(early.ok(), i % 3 != 0) << early.status();
    ASSERT_TRUE(ReadSample(*opened, i).ok());
  }
  // Three row groups and the footer.
  EXPECT_EQ(cache_->loads(), 4u);
  // With room for one part, row groups that take turns are decoded each time,
  // to the same samples.
  ExpectSamples("finevision.parquet", *Open(source, 1));
  EXPECT_EQ(cache_->loads(), 3u + 3u);
}

TEST_F(ParquetSourceTest, ReadersShareARowGroup) {
  const v1::Source source = GetSource("llava.parquet");
  Build(source);
  const auto opened = Open(source);
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] {
      for (uint64_t k = 0; k < 7; ++k) {
        EXPECT_TRUE(ReadSample(*opened, k).ok());
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(cache_->loads(), 5u);
}

TEST_F(ParquetSourceTest, EstimatesTheMemoryOfRowGroups) {
  const v1::Source source = GetSource("finevision.parquet");
  Build(source);
  const auto index = OpenFreshIndex(source, folder_, FakeKey());
  ASSERT_TRUE(index.ok()) << index.status();
  const uint64_t size = GetFile("finevision.parquet").size();
  EXPECT_EQ(EstimateBytesOfGroups(**index, 3), size);
  EXPECT_EQ(EstimateBytesOfGroups(**index, 99), size);
  EXPECT_EQ(EstimateBytesOfGroups(**index, 1), size / 3);
}

TEST_F(ParquetSourceTest, ReadsOnlyThePartsThatAreWanted) {
  const v1::Source source = GetSource("openai.parquet");
  Build(source);
  const auto opened = Open(source);
  const auto text = ReadSample(*opened, 2, {.text = true, .images = false});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_NE(text->text, "");
  EXPECT_EQ(text->media.size(), 0u);
  const auto images = ReadSample(*opened, 2, {.text = false, .images = true});
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_EQ(images->text, "");
  EXPECT_EQ(images->media.size(), 2u);
}

TEST_F(ParquetSourceTest, FindsFilesThatChangedOrVanished) {
  const v1::Source source = GetSource("finevision.parquet");
  Build(source);
  const auto opened = Open(source);
  // Another file of the same schema in its place: the same rows are others.
  const auto time = std::filesystem::last_write_time(path_);
  WriteFile(path_, GetFile("cauldron.parquet"));
  absl::Status status = ReadSample(*opened, 5).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the file has changed since it was indexed"));
  std::filesystem::remove(path_);
  status = ReadSample(*opened, 5).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  // The right file is read again, as soon as it is back.
  WriteFile(path_, GetFile("finevision.parquet"));
  std::filesystem::last_write_time(path_, time);
  ExpectSamples("finevision.parquet", *opened);
}

// A row group that was read while the file was another one is not kept: the
// images would be told apart by their heads alone.
TEST_F(ParquetSourceTest, ForgetsWhatItReadOfAnotherFile) {
  const v1::Source source = GetSource("heads_plain.parquet");
  const std::string whole = GetFile("heads_plain.parquet");
  const auto time = std::filesystem::last_write_time(path_);
  Build(source);
  const auto opened = Open(source);
  const auto before = ReadSample(*opened, 0);
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_EQ(Images(*before).size(), 1u);
  // Behind the head of the first image of the second row group.
  const auto second = ReadSample(*Open(source), 10);
  ASSERT_TRUE(second.ok()) << second.status();
  std::string other = whole;
  const size_t place = whole.find(Images(*second)[0]);
  ASSERT_NE(place, whole.npos);
  other[place + 30000] ^= 1;
  WriteFile(path_, other);
  EXPECT_EQ(ReadSample(*opened, 10).status().code(),
            absl::StatusCode::kUnavailable);
  WriteFile(path_, whole);
  std::filesystem::last_write_time(path_, time);
  const auto after = ReadSample(*opened, 10);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(Images(*after) == Images(*second));
}

TEST_F(ParquetSourceTest, OpensThroughTheIndexAndReusesIt) {
  const v1::Source source = GetSource("bad_rows.parquet");
  Build(source);
  const std::string first = ReadFile(folder_ + "/index/docs.index");
  IndexOptions options = FakeOptions();
  // Another tokenizer: texts are read again, files are not searched.
  options.key.lengths += "x";
  const auto report = BuildIndex(source, folder_, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->reused_files, 1u);
  EXPECT_EQ(report->reused_samples, 3u);
  EXPECT_EQ(report->known_bad, 0u);
  ASSERT_EQ(report->bad.size(), 11u);
  EXPECT_EQ(std::count_if(report->bad.begin(), report->bad.end(),
                          [](const BadSample& bad) { return bad.has_record; }),
            1);
  options.reuse = false;
  const std::string reused = ReadFile(folder_ + "/index/docs.index");
  ASSERT_TRUE(BuildIndex(source, folder_, options).ok());
  EXPECT_EQ(ReadFile(folder_ + "/index/docs.index"), reused);
  EXPECT_NE(reused, first);
  EXPECT_TRUE(OpenSource(source, folder_, options.key).ok());
}

}  // namespace
}  // namespace ballast
