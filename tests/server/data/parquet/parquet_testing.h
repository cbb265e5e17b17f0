#ifndef BALLAST_TESTS_SERVER_DATA_PARQUET_PARQUET_TESTING_H_
#define BALLAST_TESTS_SERVER_DATA_PARQUET_PARQUET_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/data/file_source.h"
#include "server/data/index/index_options.h"
#include "server/data/parquet/parquet_file.h"
#include "server/data/parquet/parquet_parser.h"
#include "tests/server/data/corpus_testing.h"

namespace ballast {

// Over the files that write_files.py wrote with pyarrow; skips without Arrow.
class ParquetTest : public ::testing::Test {
 protected:
  void SetUp() override;

  // The bytes of one of the files.
  static std::string GetFile(const std::string& name);
  // A source over docs.parquet in the test's folder, at first a copy of `name`.
  v1::Source GetSource(const std::string& name);
  // Builds the index; the test fails if that is impossible.
  IndexReport Build(const v1::Source& source);
  // The source over its index, with a cache of its own.
  std::unique_ptr<FileSource> Open(const v1::Source& source,
                                   uint64_t cache_bytes = 1 << 30);
  // Checks that the source has the samples that expected.json lists for `name`.
  void ExpectSamples(const std::string& name, const FileSource& source);

  std::string folder_;
  std::string path_;  // docs.parquet
  std::shared_ptr<RowGroupCache> cache_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_DATA_PARQUET_PARQUET_TESTING_H_
