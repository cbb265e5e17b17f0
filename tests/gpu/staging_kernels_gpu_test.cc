// The kernels of a micro-batch compared with their counterparts on the host,
// and the errors that they find.

#include "trainer_shim/cuda/staging_kernels.h"

#include <cstring>
#include <new>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "proto/block/block_layout.h"
#include "proto/job.pb.h"
#include "tests/gpu/device_testing.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/thd_layout.h"

namespace ballast {
namespace {

// Samples of random tokens, each at a multiple of 256 with gaps between.
struct Texts {
  std::vector<uint32_t> lengths;
  std::vector<uint64_t> offsets;
  std::vector<uint8_t> landing;
};

Texts Draw(uint32_t samples, uint32_t longest, uint32_t axes, uint32_t seed,
           FieldCounts counts = {}) {
  std::mt19937 random(seed);
  Texts texts;
  uint64_t end = 0;
  for (uint32_t i = 0; i < samples; ++i) {
    texts.lengths.push_back(1 + random() % longest);
    texts.offsets.push_back(end);
    end += LayOutLanguage(texts.lengths.back(), axes, counts).bytes +
           256 * (i % 3);
  }
  texts.landing.resize(end);
  for (uint64_t i = 0; i + 4 <= end; i += 4) {
    // Read as labels, a third of the words are unsupervised.
    const int32_t word =
        random() % 3 == 0 ? -100 : static_cast<int32_t>(random() % 200000);
    std::memcpy(texts.landing.data() + i, &word, 4);
  }
  return texts;
}

// `row_length`: of a padded batch; 0: the batch is packed.
void ExpectSameText(const Texts& texts, uint32_t axes, uint32_t align,
                    const BatchFields& fields = {},
                    const ContextSlice& context = {}, uint64_t row_length = 0,
                    const v1::Job& job = {}) {
  const TextLayout layout =
      OrDie(row_length > 0 ? LayOutRows(texts.lengths, row_length)
                           : LayOutText(texts.lengths, align));
  std::vector<TextPiece> pieces;
  std::vector<TextSource> sources;
  for (size_t i = 0; i < texts.lengths.size(); ++i) {
    pieces.push_back(
        {texts.landing.data() + texts.offsets[i], texts.lengths[i]});
    sources.push_back({texts.offsets[i], texts.lengths[i]});
  }
  PackedBatch want;
  want.fields = fields;
  want.context = context;
  want.padded = row_length > 0;
  want.text = layout;
  want.position_axes = axes;
  want.float_positions = job.float_positions();
  want.samples.resize(pieces.size());
  want.field_table = OrDie(MakeFieldTable(job));
  want.table = MakeTensorTable(GetFieldRows(*want.field_table));
  LayOutTensors(&want);
  want.Reserve();
  PackText(pieces, 151643, &want);

  const uint64_t tokens = layout.padded_tokens() / context.size;
  const DeviceBuffer landing = ToDevice(texts.landing);
  const DeviceBuffer device_sources = ToDevice(sources);
  const DeviceBuffer places = ToDevice(layout.cu_seqlens_padded);
  const DeviceBuffer ids = Filled<int64_t>(tokens, 0xAB);
  const DeviceBuffer labels = Filled<int64_t>(tokens, 0xAB);
  const DeviceBuffer mask = Filled<float>(tokens, 0xAB);
  const DeviceBuffer positions = Filled<int64_t>(tokens * axes, 0xAB);
  const DeviceBuffer attention = Filled<uint8_t>(tokens, 0xAB);
  PackTextArguments pack;
  pack.landing = landing.data();
  pack.texts = reinterpret_cast<const TextSource*>(device_sources.data());
  pack.cu_seqlens_padded = reinterpret_cast<const int32_t*>(places.data());
  pack.samples = sources.size();
  pack.context = context;
  pack.tokens = tokens;
  pack.position_axes = axes;
  pack.pad_id = 151643;
  if (fields.input_ids) {
    pack.input_ids = reinterpret_cast<int64_t*>(ids.data());
  }
  if (fields.labels) {
    pack.labels = reinterpret_cast<int64_t*>(labels.data());
    pack.loss_mask = reinterpret_cast<float*>(mask.data());
  }
  if (fields.positions && job.float_positions()) {
    pack.float_positions = reinterpret_cast<float*>(positions.data());
  } else if (fields.positions) {
    pack.position_ids = reinterpret_cast<int64_t*>(positions.data());
  }
  if (want.padded) pack.attention_mask = attention.data();
  pack.fields = want.field_table->counts;
  pack.weight_row = want.field_table->weight_row;
  std::vector<DeviceBuffer> numbers;
  for (const FieldTable::Field& field : want.field_table->fields) {
    numbers.push_back(
        Filled<uint32_t>(field.place.per_token ? tokens : pieces.size(), 0xAB));
    (field.place.per_token ? pack.field_rows
                           : pack.field_values)[field.place.number] =
        reinterpret_cast<uint32_t*>(numbers.back().data());
  }
  OrDie(LaunchPackText(pack, nullptr));
  const auto expect = [&](const DeviceBuffer& got, auto values) {
    using T = typename decltype(values)::value_type;
    EXPECT_EQ(ToHost<T>(got, 0, values.size()),
              std::vector<T>(values.begin(), values.end()));
  };
  expect(ids, want.Get<int64_t>("input_ids"));
  expect(labels, want.Get<int64_t>("labels"));
  expect(mask, want.Get<float>("loss_mask"));
  expect(positions, want.Get<int64_t>("position_ids"));
  expect(positions, want.Get<uint32_t>("position_ids"));  // of floats
  expect(attention, want.Get<uint8_t>("attention_mask"));
  for (size_t i = 0; i < numbers.size(); ++i) {
    expect(numbers[i], want.Get<uint32_t>(want.field_table->fields[i].tensor));
  }
}

v1::Job JobWithFields() {
  using Field = v1::Source::Field;
  v1::Job job;
  const auto add = [&job](const char* name, Field::Per per) {
    v1::Job::Field* field = job.add_fields();
    field->set_name(name);
    field->set_type(Field::TYPE_INT32);
    field->set_per(per);
  };
  add("advantage", Field::PER_TOKEN);
  add("channel", Field::PER_SAMPLE);
  add("reward", Field::PER_SAMPLE);
  add("weight", Field::PER_TURN);
  return job;
}

TEST(PackTextGpuTest, SameAsOnTheHost) {
  uint32_t seed = 0;
  for (const uint32_t align : {1, 4, 16, 128}) {
    for (const uint32_t axes : {1, 3}) {
      ExpectSameText(Draw(1, 1, axes, ++seed), axes, align);
      ExpectSameText(Draw(1, 9000, axes, ++seed), axes, align);
      ExpectSameText(Draw(40, 700, axes, ++seed), axes, align);
      ExpectSameText(Draw(3000, 3, axes, ++seed), axes, align);
    }
  }
}

TEST(PackTextGpuTest, SlicesOfContextRanks) {
  uint32_t seed = 100;
  for (const uint32_t size : {2, 4, 8}) {
    for (uint32_t rank = 0; rank < size; ++rank) {
      const ContextSlice context = {size, rank};
      ExpectSameText(Draw(1, 1, 3, ++seed), 3, 2 * size, {}, context);
      ExpectSameText(Draw(40, 700, 3, ++seed), 3, 4 * size, {}, context);
      ExpectSameText(Draw(3000, 3, 1, ++seed), 1, 2 * size, {}, context);
    }
  }
}

TEST(PackTextGpuTest, WritesOnlyTheTensorsOfTheStage) {
  for (const bool ids : {false, true}) {
    for (const bool labels : {false, true}) {
      ExpectSameText(Draw(40, 700, 3, 200), 3, 8, {ids, labels, true, false},
                     {4, 1});
    }
  }
}

TEST(PackTextGpuTest, RowsOfPaddedBatches) {
  for (const uint32_t axes : {1, 3}) {
    ExpectSameText(Draw(1, 1, axes, 300), axes, 1, {}, {}, 1);
    ExpectSameText(Draw(40, 700, axes, 301), axes, 1, {}, {}, 700);
    ExpectSameText(Draw(40, 700, axes, 302), axes, 1, {}, {4, 3}, 1024);
    ExpectSameText(Draw(3000, 3, axes, 303), axes, 1,
                   {false, true, true, false}, {2, 0}, 8);
  }
}

TEST(PackTextGpuTest, FloatPositions) {
  v1::Job job;
  job.set_float_positions(true);
  ExpectSameText(Draw(40, 700, 3, 350), 3, 8, {}, {}, 0, job);
  ExpectSameText(Draw(40, 700, 3, 351), 3, 1, {}, {4, 3}, 1024, job);
}

// Under another name than `weight`: the words that are drawn are bits of NaN,
// too.
TEST(PackTextGpuTest, Fields) {
  v1::Job job = JobWithFields();
  job.mutable_fields(3)->set_name("part");
  const FieldCounts counts = {2, 2};
  for (const uint32_t axes : {1, 3}) {
    ExpectSameText(Draw(1, 1, axes, 400, counts), axes, 1, {}, {}, 0, job);
    ExpectSameText(Draw(40, 700, axes, 401, counts), axes, 16, {}, {4, 3}, 0,
                   job);
    ExpectSameText(Draw(40, 700, axes, 402, counts), axes, 1, {}, {}, 1024,
                   job);
    ExpectSameText(Draw(3000, 3, axes, 403, counts), axes, 8, {}, {}, 0, job);
  }
}

TEST(PackTextGpuTest, WeightsScaleTheMask) {
  const v1::Job job = JobWithFields();
  const FieldCounts counts = {2, 2};
  Texts texts = Draw(40, 700, 3, 410, counts);
  for (size_t i = 0; i < texts.lengths.size(); ++i) {
    const LanguagePayload at = LayOutLanguage(texts.lengths[i], 3, counts);
    for (uint32_t t = 0; t < texts.lengths[i]; ++t) {
      const float weight = static_cast<float>(t % 8) / 8;
      std::memcpy(texts.landing.data() + texts.offsets[i] + at.rows +
                      4 * (uint64_t{texts.lengths[i]} + t),
                  &weight, sizeof(weight));
    }
  }
  ExpectSameText(texts, 3, 8, {}, {}, 0, job);
  ExpectSameText(texts, 3, 8, {}, {4, 1}, 0, job);
}

// More tokens than one wave of threads.
TEST(PackTextGpuTest, MillionsOfTokens) {
  ExpectSameText(Draw(2000, 4096, 3, 77), 3, 8);
}

TEST(PackTextGpuTest, WrongArgumentsAreRefused) {
  PackTextArguments pack;
  EXPECT_TRUE(LaunchPackText(pack, nullptr).ok());  // no tokens: nothing to do
  pack.tokens = 1;
  EXPECT_TRUE(absl::IsInvalidArgument(LaunchPackText(pack, nullptr)));
  const DeviceBuffer some = Filled<uint8_t>(64, 0);
  pack.landing = some.data();
  pack.texts = reinterpret_cast<const TextSource*>(some.data());
  pack.cu_seqlens_padded = reinterpret_cast<const int32_t*>(some.data());
  pack.samples = 1;
  pack.labels = reinterpret_cast<int64_t*>(some.data());  // without a mask
  EXPECT_TRUE(absl::IsInvalidArgument(LaunchPackText(pack, nullptr)));
  pack.labels = nullptr;
  pack.context = {2, 2};
  EXPECT_TRUE(absl::IsInvalidArgument(LaunchPackText(pack, nullptr)));
}

class FindingTest : public ::testing::Test {
 protected:
  FindingTest()
      : memory_(OrDie(PinnedBuffer::Create(sizeof(Finding)))),
        finding_(new (memory_.data()) Finding) {}
  Finding Found() {
    OrDie(cudaDeviceSynchronize(), "wait for the device");
    return *finding_;
  }

  const PinnedBuffer memory_;
  Finding* const finding_;
};

TEST_F(FindingTest, HeadersOfOneMicroBatchDifferOnlyInTheRank) {
  const uint64_t fingerprint = 0x1234567890A00000;
  const std::vector<ExchangeHeader> headers = {{fingerprint | 1, 500},
                                               {fingerprint | 2, 500}};
  const DeviceBuffer device = ToDevice(headers);
  const auto* received = reinterpret_cast<const ExchangeHeader*>(device.data());
  OrDie(LaunchCheckHeaders(received, 2, {fingerprint, 500}, finding_, nullptr));
  EXPECT_EQ(Found().kind, Finding::kNothing);

  OrDie(LaunchCheckHeaders(received, 2, {fingerprint, 501}, finding_, nullptr));
  const Finding place = Found();
  EXPECT_EQ(place.kind, Finding::kHeader);
  EXPECT_EQ(place.found[0], fingerprint | 1);
  EXPECT_EQ(place.found[1], 500u);
  EXPECT_EQ(place.wanted[1], 501u);
}

// CUDA keeps errors of a thread's calls, such as that an event is not done.
TEST_F(FindingTest, AnEarlierErrorOfTheTrainersIsNotTheLaunchs) {
  ASSERT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  const ExchangeHeader own = {0xABCDEF0000000000, 5};
  const DeviceBuffer received = ToDevice(std::vector<ExchangeHeader>{own});
  OrDie(LaunchCheckHeaders(
      reinterpret_cast<const ExchangeHeader*>(received.data()), 1, own,
      finding_, nullptr));
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST_F(FindingTest, AnotherFingerprintIsFound) {
  const std::vector<ExchangeHeader> headers = {{uint64_t{7} << 20, 1},
                                               {uint64_t{8} << 20 | 1, 1}};
  const DeviceBuffer device = ToDevice(headers);
  OrDie(
      LaunchCheckHeaders(reinterpret_cast<const ExchangeHeader*>(device.data()),
                         2, {uint64_t{7} << 20 | 2, 1}, finding_, nullptr));
  const Finding found = Found();
  EXPECT_EQ(found.kind, Finding::kHeader);
  EXPECT_EQ(found.found[0], headers[1].fingerprint);
}

TEST_F(FindingTest, RecordsAreComparedExceptForThePlaceholderBit) {
  constexpr uint32_t kSamples = 600;  // more than a block has threads
  std::vector<uint8_t> landing(kSamples * sizeof(SampleRecord));
  std::vector<RecordCheck> checks(kSamples);
  for (uint32_t i = 0; i < kSamples; ++i) {
    SampleRecord record = {};
    record.position = 1000 + i;
    record.tokens = i;
    record.payload_bytes = 256 * i;
    checks[i] = {i * sizeof(SampleRecord), record};
    if (i % 7 == 3) record.flags |= kSampleIsPlaceholder;
    std::memcpy(landing.data() + i * sizeof(record), &record, sizeof(record));
  }
  const DeviceBuffer device_landing = ToDevice(landing);
  const PinnedBuffer placeholders = OrDie(PinnedBuffer::Create(kSamples));
  const auto check = [&] {
    const DeviceBuffer device_checks = ToDevice(checks);
    CheckRecordsArguments arguments;
    arguments.landing = device_landing.data();
    arguments.records =
        reinterpret_cast<const RecordCheck*>(device_checks.data());
    arguments.count = kSamples;
    arguments.placeholders = placeholders.data();
    arguments.finding = finding_;
    OrDie(LaunchCheckRecords(arguments, nullptr));
    return Found();
  };
  EXPECT_EQ(check().kind, Finding::kNothing);
  for (uint32_t i = 0; i < kSamples; ++i) {
    EXPECT_EQ(placeholders.data()[i], i % 7 == 3) << i;
  }
  // The first of several is reported.
  checks[588].expected.position = 5;
  checks[311].expected.payload_bytes = 9;
  const Finding found = check();
  EXPECT_EQ(found.kind, Finding::kRecord);
  EXPECT_EQ(found.index, 311u);
  EXPECT_EQ(found.found[0], 1311u);
  EXPECT_EQ(found.found[1], 256u * 311);
  EXPECT_EQ(found.wanted[1], 9u);
}

}  // namespace
}  // namespace ballast
