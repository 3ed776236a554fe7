/* xchg A B [loop]: exchange two names in one step, once, or until it is killed or the judge is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  if (argc > 3 && prctl(PR_SET_PDEATHSIG, SIGKILL)) return 2;
  do {
    if (renameat2(AT_FDCWD, argv[1], AT_FDCWD, argv[2], RENAME_EXCHANGE) && argc == 3) return 1;
  } while (argc > 3);
  return 0;
}
