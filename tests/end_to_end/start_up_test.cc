// What cannot be served ends the server at once: exit 1 and one sentence, or
// exit 2 where the command line is wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "kernels/cuda/cuda_backend.h"
#include "tests/end_to_end/caller.h"
#include "tests/end_to_end/server_process.h"

namespace flash {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string Replaced(std::string text, const std::string& from,
                     const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// A copy of a good model, to be damaged.
class DamagedModelTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string good = FLASH_SOURCE_DIR "/tests/cases/paper";
    config_ = ReadAll(good + "/config.json");
    weights_ = ReadAll(good + "/model.safetensors");
    Write();
  }

  void Write() {
    directory_.Write("config.json", config_);
    directory_.Write("model.safetensors", weights_);
  }

  // The one line that the server writes before it ends with `code`.
  void ExpectRefusal(const std::string& words, int code = 1) {
    ServerProcess server({"--model=" + directory_.path()});
    EXPECT_FALSE(server.WaitUntilServing());
    EXPECT_EQ(server.Wait(), code);
    const std::string errors = server.Errors();
    EXPECT_THAT(errors, HasSubstr(words));
    EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
  }

  TemporaryDirectory directory_;
  std::string config_;
  std::string weights_;
};

TEST_F(DamagedModelTest, ATruncatedFileIsRefused) {
  weights_.resize(weights_.size() - 100);
  Write();
  ExpectRefusal("model.safetensors");
}

TEST_F(DamagedModelTest, AHeaderThatLiesAboutItsLengthIsRefused) {
  weights_[6] = 1;
  Write();
  ExpectRefusal("header");
}

TEST_F(DamagedModelTest, ATensorOfTheWrongShapeIsRefused) {
  config_ = Replaced(config_, "\"hidden_size\": 48", "\"hidden_size\": 49");
  Write();
  ExpectRefusal("49");
}

TEST_F(DamagedModelTest, AWeightThatIsNotANumberIsRefused) {
  // The last tensor's last number.
  std::fill(weights_.end() - 4, weights_.end(), '\xff');
  Write();
  ExpectRefusal("finite");
}

TEST_F(DamagedModelTest, AMissingFileIsRefused) {
  std::filesystem::remove(directory_.path() + "/model.safetensors");
  ExpectRefusal("model.safetensors");
}

TEST_F(DamagedModelTest, AMissingShardIsRefused) {
  std::filesystem::remove(directory_.path() + "/model.safetensors");
  directory_.Write("model.safetensors.index.json",
                   R"({"metadata": {}, "weight_map": {"embedding.weight":
                       "model-00001-of-00002.safetensors"}})");
  ExpectRefusal("model-00001-of-00002.safetensors");
}

TEST_F(DamagedModelTest, AnUnknownKeyIsRefused) {
  config_ = Replaced(config_, "\"token_shift\"",
                     "\"tokken_shift\": false, \"token_shift\"");
  Write();
  ExpectRefusal("tokken_shift");
}

TEST_F(DamagedModelTest, ATextThatIsNoJsonIsRefused) {
  config_ = "{";
  Write();
  ExpectRefusal("config.json");
}

TEST(CommandLineTest, WrongUsageExitsWithTwo) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"--model=x", "--no_such_flag=1"},
      {"--model=x", "--slots=none"},
      {"--model=x", "--device=cuda:first"},
      {"--model=x", "--listen=nowhere"},
      {"--model=x", "--weights=float8"},
      {"--model=x", "--session_store=somewhere"},
      {"--model=x", "--session_compression=gzip"},
      {"--model=x", "--checkpoint_every_tokens=8", "--prefix_cache_bytes=0"},
      {"--model=x", "stray"}};
  for (const auto& flags : wrong) {
    ServerProcess server(flags);
    EXPECT_EQ(server.Wait(), 2) << testing::PrintToString(flags);
    EXPECT_FALSE(server.Errors().empty());
  }
}

TEST(CommandLineTest, APortFileReplacesNothingButPlainFiles) {
  const std::string model = "--model=" FLASH_SOURCE_DIR "/tests/cases/paper";
  TemporaryDirectory directory;
  const std::string pipe = directory.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ServerProcess server({model, "--port_file=" + pipe});
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_THAT(server.Errors(), HasSubstr("not a plain file"));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(CommandLineTest, AStoreThatCannotBeUsedExitsWithOne) {
  const std::string model = "--model=" FLASH_SOURCE_DIR "/tests/cases/paper";
  TemporaryDirectory directory;
  directory.Write("file", "");
  for (const std::string& store :
       {"dir:" + directory.path() + "/file/below",
        std::string("redis://127.0.0.1:1"), std::string("dir:")}) {
    ServerProcess server({model, "--session_store=" + store});
    EXPECT_EQ(server.Wait(), 1) << store;
    const std::string errors = server.Errors();
    EXPECT_THAT(errors, HasSubstr(store)) << errors;
    EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
  }
}

TEST(CommandLineTest, MemoryThatIsNotThereExitsWithOne) {
  const std::string model = "--model=" FLASH_SOURCE_DIR "/tests/cases/paper";
  ServerProcess server({model, "--prefix_cache_bytes=1000000000000000"});
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_THAT(server.Errors(), HasSubstr("leave nothing for slots"));
}

// Holds in a build with CUDA and in one without, on a machine without a card.
TEST(DeviceFlagTest, WithoutACardTheServerSaysWhyAndServesOnTheProcessor) {
  if (CudaDevices().ok()) GTEST_SKIP() << "this machine has a card";
  ServerProcess server({"--model=" FLASH_SOURCE_DIR "/tests/cases/paper"});
  ASSERT_TRUE(server.WaitUntilServing()) << server.Errors();
  const std::string errors = server.Errors();
  const std::string why(CudaDevices().status().message());
  EXPECT_THAT(errors, HasSubstr("on the processor: " + why + "\n"));
  EXPECT_THAT(errors, HasSubstr(" on cpu "));
  // That line, what was loaded, and the address.
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 3) << errors;
  EXPECT_EQ(Caller(server.address()).Info().device(), "cpu");
}

TEST(DeviceFlagTest, WhereTheProcessorIsAskedForNothingIsSaidOfCards) {
  ServerProcess server(
      {"--model=" FLASH_SOURCE_DIR "/tests/cases/paper", "--device=cpu"});
  ASSERT_TRUE(server.WaitUntilServing()) << server.Errors();
  EXPECT_THAT(server.Errors(), Not(HasSubstr("on the processor")));
}

TEST(DeviceFlagTest, ACardThatIsNotThereExitsWithOne) {
  for (const std::string device : {"cuda", "cuda:1000"}) {
    if (device == "cuda" && CudaDevices().ok()) continue;
    ServerProcess server({"--model=" FLASH_SOURCE_DIR "/tests/cases/paper",
                          "--device=" + device});
    EXPECT_EQ(server.Wait(), 1);
    const std::string errors = server.Errors();
    EXPECT_THAT(errors, HasSubstr("--device is \"" + device + "\": "));
    EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
  }
}

TEST(CommandLineTest, AnAddressInUseExitsWithOne) {
  const std::string model = "--model=" FLASH_SOURCE_DIR "/tests/cases/paper";
  ServerProcess first({model});
  ASSERT_TRUE(first.WaitUntilServing()) << first.Errors();
  ServerProcess second({model, "--listen=" + first.address()});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.Errors(), HasSubstr(first.address()));
}

}  // namespace
}  // namespace flash
