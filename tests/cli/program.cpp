#include "tests/cli/program.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <stdexcept>

namespace tandem {

namespace {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

File temporary() {
  File file(std::tmpfile(), std::fclose);
  if (file == nullptr) throw std::runtime_error("no temporary file");
  return file;
}

std::string content(FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

}  // namespace

Ran run_tandem(const std::vector<std::string>& arguments, const std::function<void()>& prelude) {
  const std::string program = std::string(TANDEM_BINARY_DIR) + "/tandem";
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const File out = temporary(), err = temporary();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(fileno(out.get()), STDOUT_FILENO);
    dup2(fileno(err.get()), STDERR_FILENO);
    prelude();
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  int state = 0;
  rusage usage{};
  wait4(child, &state, 0, &usage);
  return {WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state), content(out.get()),
          content(err.get()), static_cast<size_t>(usage.ru_maxrss) * 1024};
}

}  // namespace tandem
