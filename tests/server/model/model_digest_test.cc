#include "server/model/model_digest.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/reference/model_writer.h"
#include "tests/reference/temporary_directory.h"

namespace flash {
namespace {

using Tensors = std::vector<TensorToWrite>;

std::string DigestOfFiles(const TemporaryDirectory& directory,
                          const std::string& config_json = "{}",
                          int num_threads = 2) {
  auto checkpoint = Checkpoint::Open(directory.path());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  const ModelFiles files = {.directory = directory.path(),
                            .config = {},
                            .config_json = config_json,
                            .checkpoint = *std::move(checkpoint),
                            .weights = {}};
  ThreadPool threads(num_threads);
  return ModelDigest(files, threads);
}

std::string DigestOfTensors(const Tensors& tensors) {
  const TemporaryDirectory directory;
  directory.Write("model.safetensors", SafetensorsBytes(tensors));
  return DigestOfFiles(directory);
}

// The last one is more than one piece.
Tensors SomeTensors() {
  return {{"a", DataType::kFloat32, {2, 1}, {1, 2}},
          {"b", DataType::kFloat32, {0}, {}},
          {"c",
           DataType::kBFloat16,
           {3'000'000},
           std::vector<float>(3'000'000, 0.5f)}};
}

TEST(ModelDigestTest, IsTheSameForTheSameModel) {
  const TemporaryDirectory directory;
  directory.Write("model.safetensors", SafetensorsBytes(SomeTensors()));
  const std::string digest = DigestOfFiles(directory);
  EXPECT_EQ(digest.size(), 32u);
  EXPECT_EQ(DigestOfFiles(directory, "{}", /*num_threads=*/3), digest);
  EXPECT_EQ(DigestOfTensors(SomeTensors()), digest);
}

TEST(ModelDigestTest, DoesNotDependOnTheFiles) {
  Tensors tensors = SomeTensors();
  std::swap(tensors[0], tensors[2]);
  EXPECT_EQ(DigestOfTensors(tensors), DigestOfTensors(SomeTensors()));
  const TemporaryDirectory directory;
  directory.Write("model.safetensors.index.json",
                  R"({"weight_map": {"a": "1.safetensors",
                      "b": "2.safetensors", "c": "1.safetensors"}})");
  directory.Write("1.safetensors", SafetensorsBytes({tensors[0], tensors[2]}));
  directory.Write("2.safetensors", SafetensorsBytes({tensors[1]}));
  EXPECT_EQ(DigestOfFiles(directory), DigestOfTensors(SomeTensors()));
}

TEST(ModelDigestTest, IsAnotherForAnythingElse) {
  const std::string digest = DigestOfTensors(SomeTensors());
  const auto expect_another = [&](auto change) {
    Tensors tensors = SomeTensors();
    change(tensors);
    EXPECT_NE(DigestOfTensors(tensors), digest);
  };
  expect_another([](Tensors& t) { t[0].numbers[1] = 3; });
  expect_another([](Tensors& t) { t[2].numbers.back() = 3; });
  expect_another([](Tensors& t) { t[0].name = "aa"; });
  expect_another([](Tensors& t) { t[0].shape = {1, 2}; });
  expect_another([](Tensors& t) { t[1].type = DataType::kBFloat16; });
  expect_another([](Tensors& t) { std::swap(t[0].name, t[2].name); });
  expect_another([](Tensors& t) { t.erase(t.begin() + 1); });
  const TemporaryDirectory directory;
  directory.Write("model.safetensors", SafetensorsBytes(SomeTensors()));
  EXPECT_NE(DigestOfFiles(directory, "{ }"), digest);
}

}  // namespace
}  // namespace flash
