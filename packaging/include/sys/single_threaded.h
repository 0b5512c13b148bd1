/* In the place of a header of glibc 2.32, which libstdc++ includes if it is found: an older
 * glibc has no __libc_single_threaded. To take every process for one with several threads
 * is always right. */
#pragma once
static const char __libc_single_threaded = 0;
