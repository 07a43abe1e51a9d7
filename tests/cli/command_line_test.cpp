#include "offload/cli/command_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <new>
#include <regex>
#include <stdexcept>

#include "offload/cli/command.h"
#include "offload/cli/options.h"
#include "tests/cli/program.h"

namespace tandem {
namespace {

void expect_refused(const std::vector<std::string>& arguments, const std::string& block) {
  const Ran ran = run_tandem(arguments);
  EXPECT_EQ(ran.status, 2);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, block + "\n");
}

TEST(ConfigCommandLine, HelpNamesEverySubcommand) {
  const Ran ran = run_tandem({"--help"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "");
  for (const CommandRow& row : kCommands) {
    EXPECT_NE(ran.out.find(std::string("\n  ") + row.name + " "), std::string::npos) << ran.out;
    const Ran own = run_tandem({row.name, "--help"});
    EXPECT_EQ(own.status, 0);
    EXPECT_EQ(own.out.find(row.description), 0u) << own.out;
    for (const char* option : {"--help", "--version", "--quiet"})
      EXPECT_NE(own.out.find(option), std::string::npos) << row.name << option;
  }
}

TEST(ConfigCommandLine, VersionIsThatOfTheBuildFile) {
  std::ifstream in(std::string(TANDEM_SOURCE_DIR) + "/CMakeLists.txt");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::smatch match;
  ASSERT_TRUE(std::regex_search(text, match, std::regex(R"(project\(tandem VERSION ([0-9.]+))")));
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--version"}, {"doctor", "--version"}}) {
    const Ran ran = run_tandem(arguments);
    EXPECT_EQ(ran.status, 0);
    EXPECT_EQ(ran.out, "tandem " + match[1].str() + "\n");
  }
}

TEST(ConfigCommandLine, RefusesWhatItDoesNotKnowAndNamesTheNearest) {
  expect_refused({}, "error: no command given\n  at: command line\n  try: tandem --help");
  expect_refused({"docto"}, "error: unknown command \"docto\"\n  at: command line\n  try: doctor");
  expect_refused({"paint"}, "error: unknown command \"paint\"\n  at: command line\n  try: tandem --help");
  expect_refused({"--versoin"}, "error: unknown option \"--versoin\"\n  at: command line\n  try: --version");
  expect_refused({"doctor", "--jsn"}, "error: unknown option \"--jsn\"\n  at: command line\n  try: --json");
  expect_refused({"doctor", "--what"},
                 "error: unknown option \"--what\"\n  at: command line\n  try: tandem doctor --help");
  expect_refused({"doctor", "now\n"},
                 "error: unexpected argument \"now\\x0a\"\n  at: command line\n  try: tandem doctor --help");
}

TEST(ConfigCommandLine, ResultsThatCannotBeWrittenAreAFailure) {
  const Ran ran = run_tandem({"--help"}, [] { dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO); });
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.err, "error: can't write the result: No space left on device\n  at: stdout\n");
}

TEST(ConfigCommandLine, SharedOptionsTakeOneValueEachAndKeepTheirOrder) {
  CLI::App app;
  ConfigOptions options;
  bool json = false;
  add_config_options(app, options);
  add_json_option(app, json);
  app.parse("--set a.b=1 mine.json --set \"a.c=[1, 2]\" --set=a.b=x=y --json");
  EXPECT_EQ(options.path, "mine.json");
  EXPECT_EQ(options.sets, (std::vector<std::string>{"a.b=1", "a.c=[1, 2]", "a.b=x=y"}));
  EXPECT_TRUE(json);
}

template <class Exception>
Failure failure_after(const Exception& exception) {
  return failure_of(std::make_exception_ptr(exception));
}

TEST(ConfigCommandLine, EveryExceptionHasAStatusAndABlock) {
  const Failure error = failure_after(Error(Status::terminated, "a", "b", "c"));
  EXPECT_EQ(error.status, Status::terminated);
  EXPECT_EQ(error.text, "error: a\n  at: b\n  try: c");

  const Failure list = failure_after(ErrorList({Error(Status::usage, "a"), Error(Status::usage, "b")}));
  EXPECT_EQ(list.status, Status::usage);
  EXPECT_EQ(list.text, "error: a\nerror: b\n2 errors");

  const Failure memory = failure_after(std::bad_alloc());
  EXPECT_EQ(memory.status, Status::does_not_fit);
  EXPECT_NE(memory.text.find("memory"), std::string::npos);

  const Failure ours = failure_after(InternalError("core/x.cpp", 7, "a promise"));
  EXPECT_EQ(ours.status, Status::failed);
  EXPECT_EQ(ours.text.find("error: internal error: a promise (core/x.cpp:7)\n  try: "), 0u) << ours.text;
  EXPECT_NE(ours.text.find("report"), std::string::npos);

  EXPECT_EQ(failure_after(std::runtime_error("x")).status, Status::failed);
  EXPECT_EQ(failure_after(7).status, Status::failed);
}

}  // namespace
}  // namespace tandem
