#include "client/session_output.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"

namespace flash {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

v1::Session Sample() {
  v1::Session session;
  session.set_id("0123abcd");
  session.set_num_tokens(1234567);
  session.set_num_bytes(890);
  session.set_in_use(true);
  session.set_expires_ms(1'700'000'000'000);
  return session;
}

TEST(SessionOutputTest, AlignsItsColumns) {
  v1::Session longer = Sample();
  longer.set_id("0123456789abcdef");
  longer.set_last_request_id("me");
  const std::string text = SessionsText({Sample(), longer});
  EXPECT_THAT(text, StartsWith("SESSION           TOKENS   BYTES  IN USE  "));
  EXPECT_THAT(text, HasSubstr("\n0123abcd          1234567  890    yes     -"));
  EXPECT_THAT(text, HasSubstr("\n0123456789abcdef  1234567  890    yes     -"));
  EXPECT_THAT(text, HasSubstr("2023-11-1"));
  EXPECT_THAT(text, HasSubstr("  me\n"));
}

TEST(SessionOutputTest, WritesASessionAsOneObject) {
  const std::string line = SessionJson(Sample());
  EXPECT_EQ(line.back(), '\n');
  const auto object = nlohmann::json::parse(line);
  EXPECT_EQ(object["id"], "0123abcd");
  EXPECT_EQ(object["num_tokens"], 1234567);
  EXPECT_EQ(object["in_use"], true);
}

}  // namespace
}  // namespace flash
