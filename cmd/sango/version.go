package main

import (
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
)

// version prints the version of this program, or what a binary was built with.
func version(args []string) error {
	switch len(args) {
	case 0:
		v := "(devel)"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
			v = info.Main.Version
		}
		fmt.Println("sango", v)
		return nil
	case 1:
		return versionOf(args[0])
	}
	return fmt.Errorf("version takes one binary")
}

func versionOf(file string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings[settingPatch] == "" {
		return fmt.Errorf("%s: not built by sango, or without package net", file)
	}
	fmt.Printf("%s: %s, library %s, patch %s\n",
		file, info.GoVersion, settings[settingLibrary], settings[settingPatch])
	return nil
}
