#include "server/model/checkpoint.h"

#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/model/safetensors.h"
#include "tests/reference/model_writer.h"
#include "tests/reference/temporary_directory.h"

namespace flash {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string ErrorOf(const absl::Status& status) {
  return status.ok() ? "accepted" : std::string(status.message());
}

// What ParseSafetensors says of these bytes.
std::string ErrorOf(const std::string& bytes) {
  return ErrorOf(
      ParseSafetensors(std::as_bytes(std::span(bytes)), "m.safetensors")
          .status());
}

std::string ErrorOf(const std::string& header, size_t data_bytes) {
  return ErrorOf(SafetensorsBytes(header, std::string(data_bytes, '\0')));
}

std::string OpenError(const TemporaryDirectory& directory) {
  return ErrorOf(Checkpoint::Open(directory.path()).status());
}

TensorToWrite Tensor(const std::string& name, float first) {
  return {name, DataType::kFloat32, {2}, {first, first + 1}};
}

TEST(SafetensorsTest, FindsEveryTensorWhereTheHeaderSays) {
  const std::string bytes =
      SafetensorsBytes({{"a", DataType::kFloat32, {2, 1}, {1, 2}},
                        {"b", DataType::kBFloat16, {3}, {3, 4, 5}},
                        {"c", DataType::kFloat16, {}, {6}},
                        {"d", DataType::kFloat32, {0, 4}, {}}});
  const auto tensors =
      ParseSafetensors(std::as_bytes(std::span(bytes)), "m.safetensors");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 4u);
  const TensorView& a = tensors->at("a");
  EXPECT_EQ(a.type, DataType::kFloat32);
  EXPECT_THAT(a.shape, ElementsAre(2, 1));
  float numbers[2];
  std::memcpy(numbers, a.data, sizeof numbers);
  EXPECT_THAT(numbers, ElementsAre(1, 2));
  EXPECT_EQ(tensors->at("b").type, DataType::kBFloat16);
  EXPECT_EQ(tensors->at("b").data, a.data + 8);
  EXPECT_EQ(tensors->at("c").type, DataType::kFloat16);
  EXPECT_EQ(tensors->at("c").num_bytes(), 2u);
  EXPECT_EQ(tensors->at("d").num_bytes(), 0u);
}

TEST(SafetensorsTest, TakesMetadataAndPaddingForWhatTheyAre) {
  EXPECT_EQ(ErrorOf(R"({"__metadata__": {"format": "pt"}}   )", 0), "accepted");
}

TEST(SafetensorsTest, RefusesAFileThatIsCutShortAnywhere) {
  const std::string whole = SafetensorsBytes({Tensor("a", 1), Tensor("b", 2)});
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THAT(ErrorOf(whole.substr(0, length)), HasSubstr("m.safetensors: "))
        << length;
  }
  EXPECT_EQ(ErrorOf(whole), "accepted");
  EXPECT_THAT(ErrorOf(whole + "x"), HasSubstr("the last 1 bytes belong to no"));
}

TEST(SafetensorsTest, RefusesAHeaderLengthBeyondTheFile) {
  std::string bytes = SafetensorsBytes({Tensor("a", 1)});
  for (const uint64_t length :
       {uint64_t{bytes.size()}, uint64_t{bytes.size() - 7},
        uint64_t{100'000'001}, UINT64_MAX, UINT64_MAX - 7, uint64_t{1} << 63}) {
    std::memcpy(bytes.data(), &length, sizeof length);
    EXPECT_THAT(ErrorOf(bytes), HasSubstr("does not fit into a file of"));
  }
}

TEST(SafetensorsTest, RefusesAHeaderThatIsNotWellFormed) {
  EXPECT_THAT(ErrorOf("{", 0), HasSubstr("is not valid JSON"));
  EXPECT_THAT(ErrorOf("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf(R"({"a": 1})", 0),
              HasSubstr("\"a\" is 1; accepted is an object"));
  EXPECT_THAT(ErrorOf(R"({"a": {"dtype": "F32", "shape": [1]}})", 4),
              HasSubstr("\"a.data_offsets\" is missing"));
  EXPECT_THAT(
      ErrorOf(
          R"({"a": {"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":0}})",
          4),
      HasSubstr("\"a.x\" is not a key"));
}

TEST(SafetensorsTest, RefusesATensorThatIsThereTwice) {
  const std::string entry =
      R"("a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})";
  EXPECT_THAT(ErrorOf("{" + entry + "," + entry + "}", 4),
              HasSubstr("\"a\" is there twice"));
}

// A header with one tensor, of one float32 unless the arguments say otherwise.
std::string Header(const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return R"({"a": {"dtype": ")" + dtype + R"(", "shape": )" + shape +
         R"(, "data_offsets": )" + offsets + "}}";
}

TEST(SafetensorsTest, RefusesTypesThatTheFormatDoesNotHave) {
  for (const char* dtype : {"F64", "I64", "U8", "BOOL", "F8_E4M3", "f32", ""}) {
    EXPECT_THAT(ErrorOf(Header(dtype, "[1]", "[0, 4]"), 4),
                AllOf(HasSubstr("\"a.dtype\""),
                      HasSubstr("one of \"F32\", \"F16\", \"BF16\"")));
  }
}

TEST(SafetensorsTest, RefusesOffsetsThatLie) {
  for (const char* offsets : {"[0, 8]", "[4, 8]", "[0, 9223372036854775807]"}) {
    EXPECT_THAT(ErrorOf(Header("F32", "[1]", offsets), 4),
                HasSubstr("the file is cut off: tensor \"a\" ends at byte"))
        << offsets;
  }
  for (const char* offsets :
       {"[-4, 0]", "[0, 4.0]", "[0, 18446744073709551615]"}) {
    EXPECT_THAT(ErrorOf(Header("F32", "[1]", offsets), 4),
                HasSubstr("\"a.data_offsets\" has an element"))
        << offsets;
  }
  for (const char* offsets : {"[]", "[0]", "[0, 4, 4]", "[4, 0]"}) {
    EXPECT_THAT(ErrorOf(Header("F32", "[1]", offsets), 4),
                HasSubstr("of tensor \"a\" are not a begin and an end"))
        << offsets;
  }
}

TEST(SafetensorsTest, RefusesShapesThatDoNotTakeTheTensorsBytes) {
  for (const char* shape : {"[2]", "[0]", "[1, 3]", "[1099511627776]",
                            "[16777216, 16777216, 16777216, 16777216]",
                            "[16777216, 16777216, 16777216, 0]"}) {
    EXPECT_THAT(ErrorOf(Header("F32", shape, "[0, 4]"), 4),
                AllOf(HasSubstr("tensor \"a\" has 4 bytes"),
                      HasSubstr("not what its shape takes")))
        << shape;
  }
  EXPECT_THAT(ErrorOf(Header("F32", "[-1]", "[0, 4]"), 4),
              HasSubstr("\"a.shape\" has an element -1"));
  EXPECT_EQ(ErrorOf(Header("F32", "[]", "[0, 4]"), 4), "accepted");
}

std::string TwoTensors(const std::string& a, const std::string& b) {
  const std::string begin =
      R"({"dtype": "F16", "shape": [2], "data_offsets": )";
  return R"({"a": )" + begin + a + R"(}, "b": )" + begin + b + "}}";
}

TEST(SafetensorsTest, RefusesOverlapsAndHoles) {
  EXPECT_EQ(ErrorOf(TwoTensors("[0, 4]", "[4, 8]"), 8), "accepted");
  EXPECT_EQ(ErrorOf(TwoTensors("[4, 8]", "[0, 4]"), 8), "accepted");
  EXPECT_THAT(ErrorOf(TwoTensors("[0, 4]", "[2, 6]"), 6),
              HasSubstr("tensor \"b\" overlaps another one"));
  EXPECT_THAT(ErrorOf(TwoTensors("[0, 4]", "[0, 4]"), 4),
              HasSubstr("overlaps"));
  EXPECT_THAT(ErrorOf(TwoTensors("[0, 4]", "[6, 10]"), 10),
              HasSubstr("the 2 bytes before tensor \"b\" belong to no tensor"));
  EXPECT_THAT(ErrorOf(TwoTensors("[2, 6]", "[6, 10]"), 10),
              HasSubstr("the 2 bytes before tensor \"a\""));
}

TEST(CheckpointTest, ReadsASingleFile) {
  const TemporaryDirectory directory;
  directory.Write("model.safetensors",
                  SafetensorsBytes({Tensor("a", 1), Tensor("b", 3)}));
  auto checkpoint = Checkpoint::Open(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const Checkpoint moved = *std::move(checkpoint);  // and its views stay
  EXPECT_EQ(moved.tensors().size(), 2u);
  ASSERT_NE(moved.Find("b"), nullptr);
  float numbers[2];
  std::memcpy(numbers, moved.Find("b")->data, sizeof numbers);
  EXPECT_THAT(numbers, ElementsAre(3, 4));
  EXPECT_EQ(moved.Find("c"), nullptr);
}

class ShardedCheckpointTest : public testing::Test {
 protected:
  ShardedCheckpointTest() {
    WriteIndex(R"("a": "1.safetensors", "b": "2.safetensors",
                  "c": "1.safetensors")");
    WriteShard("1", {Tensor("a", 1), Tensor("c", 3)});
    WriteShard("2", {Tensor("b", 2)});
  }

  void WriteIndex(const std::string& weight_map) {
    directory_.Write("model.safetensors.index.json",
                     R"({"metadata": {"total_size": 24}, "weight_map": {)" +
                         weight_map + "}}");
  }

  void WriteShard(const std::string& stem,
                  const std::vector<TensorToWrite>& tensors) {
    directory_.Write(stem + ".safetensors", SafetensorsBytes(tensors));
  }

  const TemporaryDirectory directory_;
};

TEST_F(ShardedCheckpointTest, ReadsTheShardsOfTheIndex) {
  const auto checkpoint = Checkpoint::Open(directory_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->tensors().size(), 3u);
  float numbers[2];
  std::memcpy(numbers, checkpoint->Find("b")->data, sizeof numbers);
  EXPECT_THAT(numbers, ElementsAre(2, 3));
}

TEST_F(ShardedCheckpointTest, NamesAShardThatIsMissing) {
  WriteIndex(R"("a": "1.safetensors", "b": "3.safetensors",
                "c": "1.safetensors")");
  const absl::Status status = Checkpoint::Open(directory_.path()).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(ErrorOf(status),
              AllOf(HasSubstr("3.safetensors"), HasSubstr("tensor \"b\"")));
}

TEST_F(ShardedCheckpointTest, NamesATensorThatTheShardLacks) {
  WriteShard("1", {Tensor("a", 1)});
  EXPECT_THAT(OpenError(directory_),
              HasSubstr("1.safetensors: lacks tensor \"c\""));
}

TEST_F(ShardedCheckpointTest, NamesATensorThatTheIndexLacks) {
  WriteShard("2", {Tensor("b", 2), Tensor("d", 2)});
  EXPECT_THAT(OpenError(directory_),
              HasSubstr("2.safetensors: has tensor \"d\", which"));
}

TEST_F(ShardedCheckpointTest, NamesATensorThatTwoShardsHave) {
  WriteShard("2", {Tensor("a", 2), Tensor("b", 2)});
  EXPECT_THAT(OpenError(directory_),
              HasSubstr("2.safetensors: has tensor \"a\", which"));
}

TEST_F(ShardedCheckpointTest, NamesAShardThatIsDamaged) {
  directory_.Write("2.safetensors", "short");
  EXPECT_THAT(OpenError(directory_), HasSubstr("2.safetensors: 5 bytes"));
}

TEST_F(ShardedCheckpointTest, RefusesAnIndexThatIsNotWellFormed) {
  const std::string name = "model.safetensors.index.json";
  directory_.Write(name, "{");
  EXPECT_THAT(OpenError(directory_), HasSubstr("is not valid JSON"));
  directory_.Write(name, "{}");
  EXPECT_THAT(OpenError(directory_), HasSubstr("\"weight_map\" is missing"));
  directory_.Write(name, "");
  EXPECT_THAT(OpenError(directory_), HasSubstr("is not valid JSON"));
  WriteIndex(R"("a": 1)");
  EXPECT_THAT(OpenError(directory_), HasSubstr("\"weight_map.a\" is 1"));
  WriteIndex(R"("a": "1.safetensors", "a": "2.safetensors")");
  EXPECT_THAT(OpenError(directory_), HasSubstr("\"a\" is there twice"));
}

TEST_F(ShardedCheckpointTest, RefusesShardsOutsideTheModelDirectory) {
  for (const char* shard : {"../1.safetensors", "/1.safetensors", "..", ""}) {
    WriteIndex(R"("a": ")" + std::string(shard) + "\"");
    EXPECT_THAT(OpenError(directory_),
                HasSubstr("the name of a file in the same directory"));
  }
}

TEST_F(ShardedCheckpointTest, RefusesToChooseBetweenAFileAndAnIndex) {
  WriteShard("model", {Tensor("a", 1)});
  EXPECT_THAT(OpenError(directory_), HasSubstr("has both model.safetensors"));
}

TEST(CheckpointTest, NamesADirectoryThatHoldsNoModel) {
  const TemporaryDirectory directory;
  const absl::Status status = Checkpoint::Open(directory.path()).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(ErrorOf(status),
              AllOf(HasSubstr(directory.path()), HasSubstr("has neither")));
  EXPECT_FALSE(Checkpoint::Open(directory.path() + "/none").ok());
}

TEST(CheckpointTest, RefusesAFileOfNothingAndADirectoryInItsPlace) {
  const TemporaryDirectory directory;
  directory.Write("model.safetensors", "");
  EXPECT_THAT(OpenError(directory), HasSubstr("0 bytes are too few"));
  const TemporaryDirectory other;
  std::filesystem::create_directory(other.path() + "/model.safetensors");
  EXPECT_THAT(OpenError(other), HasSubstr("is not a file"));
}

}  // namespace
}  // namespace flash
