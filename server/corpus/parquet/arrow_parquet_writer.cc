#include <exception>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/writer.h>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/parquet/parquet_writer.h"

namespace ballast {
namespace {

const std::shared_ptr<arrow::DataType>& ImageType() {
  static const auto& type = *new std::shared_ptr<arrow::DataType>(
      arrow::struct_({arrow::field("bytes", arrow::binary()),
                      arrow::field("path", arrow::utf8())}));
  return type;
}

const std::shared_ptr<arrow::DataType>& TurnType() {
  static const auto& type = *new std::shared_ptr<arrow::DataType>(
      arrow::struct_({arrow::field("from", arrow::utf8()),
                      arrow::field("value", arrow::utf8())}));
  return type;
}

std::string_view View(absl::string_view text) {
  return std::string_view(text.data(), text.size());
}

// Runs `call`, which returns an arrow::Status.
template <typename Call>
absl::Status Guard(const std::string& path, Call call) {
  std::string reason;
  try {
    const arrow::Status status = call();
    if (status.ok()) return absl::OkStatus();
    reason = status.message();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path, ": ", reason));
}

// A builder of lists of structs of two fields.
class PairLists {
 public:
  explicit PairLists(const std::shared_ptr<arrow::DataType>& type)
      : lists_(arrow::MakeBuilder(arrow::list(type)).ValueOrDie()) {}

  arrow::Status BeginList() { return lists().Append(); }
  template <typename First>
  arrow::Status Add(std::string_view first, std::string_view second) {
    auto& pairs = static_cast<arrow::StructBuilder&>(*lists().value_builder());
    ARROW_RETURN_NOT_OK(pairs.Append());
    ARROW_RETURN_NOT_OK(
        static_cast<First&>(*pairs.field_builder(0)).Append(first));
    return static_cast<arrow::StringBuilder&>(*pairs.field_builder(1))
        .Append(second);
  }
  arrow::Result<std::shared_ptr<arrow::Array>> Finish() {
    return lists_->Finish();
  }

 private:
  arrow::ListBuilder& lists() {
    return static_cast<arrow::ListBuilder&>(*lists_);
  }

  std::unique_ptr<arrow::ArrayBuilder> lists_;
};

class ArrowParquetWriter final : public ParquetWriter {
 public:
  ArrowParquetWriter(std::string path, bool checksums)
      : path_(std::move(path)), checksums_(checksums) {}

  absl::Status Open() {
    return Guard(path_, [&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(file_, arrow::io::FileOutputStream::Open(path_));
      parquet::WriterProperties::Builder builder;
      builder.compression(arrow::Compression::SNAPPY);
      if (checksums_) builder.enable_page_checksum();
      const auto properties = builder.build();
      ARROW_ASSIGN_OR_RAISE(
          writer_,
          parquet::arrow::FileWriter::Open(
              *Schema(), arrow::default_memory_pool(), file_, properties));
      return arrow::Status::OK();
    });
  }

  absl::Status WriteGroup(absl::Span<const Row> rows) override {
    return Guard(path_, [&]() -> arrow::Status {
      PairLists images(ImageType());
      PairLists turns(TurnType());
      for (const Row& row : rows) {
        ARROW_RETURN_NOT_OK(images.BeginList());
        for (const Image& image : row.images) {
          ARROW_RETURN_NOT_OK(
              images.Add<arrow::BinaryBuilder>(View(image.bytes), image.path));
        }
        ARROW_RETURN_NOT_OK(turns.BeginList());
        for (const auto& [from, value] : row.turns) {
          ARROW_RETURN_NOT_OK(turns.Add<arrow::StringBuilder>(from, value));
        }
      }
      ARROW_ASSIGN_OR_RAISE(const auto image_lists, images.Finish());
      ARROW_ASSIGN_OR_RAISE(const auto turn_lists, turns.Finish());
      return writer_->WriteTable(
          *arrow::Table::Make(Schema(), {image_lists, turn_lists}),
          static_cast<int64_t>(rows.size()));
    });
  }

  absl::Status Finish() override {
    return Guard(path_, [&]() -> arrow::Status {
      ARROW_RETURN_NOT_OK(writer_->Close());
      return file_->Close();
    });
  }

 private:
  static std::shared_ptr<arrow::Schema> Schema() {
    return arrow::schema(
        {arrow::field("images", arrow::list(ImageType())),
         arrow::field("conversations", arrow::list(TurnType()))});
  }

  const std::string path_;
  const bool checksums_;
  std::shared_ptr<arrow::io::FileOutputStream> file_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ParquetWriter>> ParquetWriter::Create(
    const std::string& path, bool checksums) {
  auto writer = std::make_unique<ArrowParquetWriter>(path, checksums);
  BALLAST_RETURN_IF_ERROR(writer->Open());
  return std::unique_ptr<ParquetWriter>(std::move(writer));
}

}  // namespace ballast
